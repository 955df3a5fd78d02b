#include "ops/tensors/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <mutex>
#include <optional>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/device_type.h"
#include "backend/exception.h"
#include "backend/library.h"
#include "backend/thread_current.h"

namespace openreg::ops {

namespace {

constexpr c10::DispatchKeySet kKeys(backend::kDispatchKey);

/// The allocator asks the thread's current device, so that is switched for the length of an
/// allocation.
class AllocationDevice {
 public:
  explicit AllocationDevice(c10::Device device) : previous_(backend::current_device()) {
    backend::set_device(backend::resolve_device(device.index()));
  }
  ~AllocationDevice() { backend::set_device_unchecked(previous_); }
  AllocationDevice(const AllocationDevice&) = delete;
  AllocationDevice& operator=(const AllocationDevice&) = delete;

 private:
  c10::DeviceIndex previous_;
};

at::Tensor filled_if_asked(at::Tensor tensor) {
  if (fills_uninitialized_memory()) at::native::fill_empty_deterministic_(tensor);
  return tensor;
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

/// One per device. Leaked as PyTorch leaks its own: zero tensors point to it for as long as they
/// live.
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
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

bool fills_uninitialized_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor empty_on(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype,
                    std::optional<at::MemoryFormat> format) {
  return backend::translate_errors([&] {
    const AllocationDevice current(device);
    return filled_if_asked(at::Tensor(
        at::detail::empty_generic(sizes, &backend::device_allocator(), kKeys, dtype, format)));
  });
}

at::Tensor empty_strided_on(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            at::ScalarType dtype) {
  return backend::translate_errors([&] {
    const AllocationDevice current(device);
    return filled_if_asked(at::Tensor(at::detail::empty_strided_generic(
        sizes, strides, &backend::device_allocator(), kKeys, dtype)));
  });
}

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
}

}  // namespace openreg::ops
