#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string_view>

namespace openreg::ops {

/// Throws c10::Error with the CPU's message. `op` names the operator.
[[noreturn]] inline void refuse_mixed_devices(std::string_view op, c10::Device a, c10::Device b) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ", a,
              " and ", b, "! (when checking the arguments of ", op, ")");
}

/// Checks that the tensors of a call are on one device: for operators that do not take 0-dim CPU
/// tensors as numbers either. check() is called with one after another, and throws as
/// refuse_mixed_devices() does.
class SameDevice {
 public:
  explicit SameDevice(const char* op) : op_(op) {}

  void check(const at::TensorBase& tensor) {
    if (!tensor.defined()) return;
    const auto device = tensor.device();
    if (device_.value_or(device) != device) refuse_mixed_devices(op_, *device_, device);
    device_ = device;
  }

 private:
  const char* op_;
  std::optional<c10::Device> device_;
};

}  // namespace openreg::ops
