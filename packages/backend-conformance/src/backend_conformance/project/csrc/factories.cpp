// New tensors. Everything that makes a tensor ends in one of these two operators.
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "allocator.h"
#include "device.h"

namespace torch_acme {

namespace {

void check(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "acme: only strided tensors are supported (got layout ", *layout,
                              ")");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms() asks for a value in memory that nothing has written yet.
at::Tensor finished(at::Tensor tensor) {
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

// The allocator allocates on the current device, so each factory switches to the tensor's device.
// The guard raises if there is no such device.
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check(layout, pin_memory);
  const c10::DeviceGuard guard(device.value_or(c10::Device(kAcme)));
  return finished(
      at::detail::empty_generic(size, &allocator(), kKeys, at::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check(layout, pin_memory);
  const c10::DeviceGuard guard(device.value_or(c10::Device(kAcme)));
  return finished(at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                                    at::dtype_or_default(dtype)));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace torch_acme
