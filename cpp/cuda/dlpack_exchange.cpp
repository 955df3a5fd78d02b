#include "cuda/memory_bindings.h"

#include <ATen/dlpack.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cstddef>

namespace openreg::bindings {

namespace {

constexpr const char* kCapsule = "dlpack_exchange_api";
constexpr const char* kRefusal =
    "openreg: DLPack cannot export CUDA tensors: the importing library would use a GPU, and CUDA "
    "is emulated on the CPU; use Tensor.cpu()";

// Functions of C have no state, so each of PyTorch's tables has its own: that of tensors, and since
// 2.14 that of read-only wrappers.
constexpr std::size_t kTables = 2;
std::array<const DLPackExchangeAPI*, kTables> theirs{};
std::array<DLPackExchangeAPI, kTables> ours{};

int refuse_exchange() {
  PyErr_SetString(PyExc_BufferError, kRefusal);
  return -1;
}

bool holds_address(void* object) {
  auto* const tensor = static_cast<PyObject*>(object);
  return THPVariable_Check(tensor) && THPVariable_Unpack(tensor).is_cuda();
}

template <std::size_t table>
int managed_from_object(void* object, DLManagedTensorVersioned** out) {
  return holds_address(object) ? refuse_exchange()
                               : theirs[table]->managed_tensor_from_py_object_no_sync(object, out);
}

template <std::size_t table>
int borrowed_from_object(void* object, DLTensor* out) {
  return holds_address(object) ? refuse_exchange()
                               : theirs[table]->dltensor_from_py_object_no_sync(object, out);
}

template <std::size_t table>
int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
             void (*set_error)(void* error_context, const char* kind, const char* message)) {
  if (prototype->device.device_type == kDLCUDA) {
    set_error(error_context, "BufferError", kRefusal);
    return -1;
  }
  return theirs[table]->managed_tensor_allocator(prototype, out, error_context, set_error);
}

template <std::size_t table>
int current_stream(DLDeviceType type, std::int32_t id, void** out) {
  return type == kDLCUDA ? refuse_exchange() : theirs[table]->current_work_stream(type, id, out);
}

template <std::size_t table>
nb::object without_addresses(nb::handle capsule) {
  const void* const given = PyCapsule_GetPointer(capsule.ptr(), kCapsule);
  if (given == nullptr) {
    throw nb::python_error();
  }
  theirs[table] = static_cast<const DLPackExchangeAPI*>(given);
  ours[table] = *theirs[table];
  ours[table].header.prev_api = nullptr;  // of an older version, with functions of its own
  ours[table].managed_tensor_allocator = &allocate<table>;
  ours[table].managed_tensor_from_py_object_no_sync = &managed_from_object<table>;
  if (theirs[table]->dltensor_from_py_object_no_sync != nullptr) {
    ours[table].dltensor_from_py_object_no_sync = &borrowed_from_object<table>;
  }
  ours[table].current_work_stream = &current_stream<table>;
  return nb::steal(PyCapsule_New(&ours[table], kCapsule, nullptr));
}

}  // namespace

void init_dlpack_exchange(nb::module_& m) {
  m.def("exchange_without_addresses", &without_addresses<0>, nb::arg("capsule"),
        "PyTorch's table of DLPack's functions for tensors, refusing those of the device. Called "
        "once.");
  m.def("const_exchange_without_addresses", &without_addresses<1>, nb::arg("capsule"),
        "The same for read-only wrappers.");
}

}  // namespace openreg::bindings
