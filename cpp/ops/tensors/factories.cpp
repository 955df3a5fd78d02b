#include "ops/tensors/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <mutex>
#include <optional>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/stream.h"
#include "backend/thread_current.h"
#include "slot.h"

namespace openreg::ops {

namespace {

constexpr c10::DispatchKeySet kDenseKeys(backend::kDispatchKey);

/// The checks and warnings of PyTorch's factories for these arguments.
void check_new(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::detail::check_size_nonnegative(sizes);
  if (dtype == at::kComplexHalf) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

/// A tensor over new memory, with one dimension and no elements.
at::Tensor tensor_of_bytes(openreg::Stream& stream, std::size_t nbytes, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), nbytes, backend::allocate_for(stream, nbytes),
          &backend::device_allocator(), /*resizable=*/true)),
      kDenseKeys, dtype);
}

void fill_if_deterministic(at::Tensor& tensor) {
  if (fills_uninitialized_memory()) at::native::fill_empty_deterministic_(tensor);
}

c10::Device requested_device(std::optional<c10::Device> device) {
  return device.value_or(c10::Device(backend::kDeviceType));
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "openreg: empty makes strided tensors only (got layout ", *layout,
                              ")");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  return empty_on(requested_device(device), size, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return empty_strided_on(requested_device(device), size, stride, c10::dtype_or_default(dtype));
}

/// One per device. Leaked, as PyTorch leaks its own, because zero tensors point to it.
at::native::ZeroTensorAllocator& zero_tensor_allocator(c10::Device device) {
  static auto& allocators =
      *new std::array<std::optional<at::native::ZeroTensorAllocator>, kMaxDevices>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& allocator = allocators[backend::device_slot(device.index())];
  if (!allocator) allocator.emplace(device);
  return *allocator;
}

/// A tensor of zeros without memory: its data pointer is null and the ZeroTensor key makes
/// operators treat it as zero.
at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout>, std::optional<at::Device> device,
                               std::optional<bool>) {
  const c10::Device on(backend::kDeviceType,
                       backend::resolve_device(requested_device(device).index()));
  return at::detail::empty_generic(size, &zero_tensor_allocator(on),
                                   kDenseKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

bool fills_uninitialized_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor empty_on(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype,
                    std::optional<at::MemoryFormat> format) {
  auto& stream = backend::current_stream(device.index());
  check_new(sizes, dtype);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  auto tensor = tensor_of_bytes(
      stream, at::detail::computeStorageNbytesContiguous(sizes, type.itemsize()), type);
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Contiguous) impl->empty_tensor_restride(*format);
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor empty_strided_on(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            at::ScalarType dtype) {
  auto& stream = backend::current_stream(device.index());
  check_new(sizes, dtype);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  return make_tensor(stream, sizes, strides, type,
                     at::detail::computeStorageNbytes(sizes, strides, type.itemsize()));
}

at::Tensor make_tensor(openreg::Stream& stream, at::IntArrayRef sizes, at::IntArrayRef strides,
                       caffe2::TypeMeta dtype, std::size_t nbytes) {
  auto tensor = tensor_of_bytes(stream, nbytes, dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor make_result(openreg::Stream& stream, const Geometry& geometry) {
  if (!geometry.defined) return {};
  return backend::translate_errors([&] {
    return make_tensor(stream, geometry.sizes, geometry.strides,
                       c10::scalarTypeToTypeMeta(geometry.dtype), geometry.nbytes);
  });
}

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
}

}  // namespace openreg::ops
