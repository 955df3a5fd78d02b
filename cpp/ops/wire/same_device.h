#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>

#include <optional>
#include <string_view>

namespace openreg::ops {

/// Throws c10::Error with the CPU's message. `op` names the operator.
[[noreturn]] void refuse_mixed_devices(std::string_view op, c10::Device a, c10::Device b);

/// Is shown the tensors of a call one by one, and refuses the first that is not on the device of
/// those before: for operators that do not take 0-dim CPU tensors as numbers either.
class SameDevice {
 public:
  explicit SameDevice(const char* op) : op_(op) {}

  void see(const at::TensorBase& tensor) {
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
