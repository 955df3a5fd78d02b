#pragma once

#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <optional>
#include <vector>

#include "backend/stream.h"
#include "ops/launch/call_plan.h"
#include "ops/launch/launch.h"
#include "slot.h"

namespace openreg::ops {

/// Finds out, before the meta function of a structured operator is called, whether a signature can
/// distinguish its calls. add() is called with one argument after another.
class StructuredCall {
 public:
  /// `takes_numbers`: 0-dim CPU tensors are allowed beside the device's.
  explicit StructuredCall(bool takes_numbers) : takes_numbers_(takes_numbers) {}

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto device = tensor.device();
    if (backend::is_openreg(device)) {
      if (seen_ && device_ != device) plannable_ = false;
      seen_ = true;
      device_ = device;
    } else if (!takes_numbers_ || !device.is_cpu() || tensor.dim() != 0) {
      plannable_ = false;
    }
  }
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor) add(*tensor);
  }
  void add(const at::ITensorListRef& tensors) {
    for (const auto& tensor : tensors) add(tensor);
  }
  void add(const c10::List<std::optional<at::Tensor>>& indices);
  template <class T>
  void add(const T&) {}

  /// The device of the call; none if the arguments must be checked one by one.
  std::optional<c10::Device> device() const {
    return plannable_ && seen_ ? std::optional(device_) : std::nullopt;
  }

 private:
  bool takes_numbers_;
  bool plannable_ = true;
  bool seen_ = false;  // a tensor on device_
  c10::Device device_ = c10::kCPU;
};

/// The sizes and strides of given outputs, as they were before the meta function.
class OutputSizes {
 public:
  template <std::size_t n>
  explicit OutputSizes(const std::array<at::Tensor, n>& outputs) {
    for (const auto& output : outputs) before_.push_back(Geometry::of(output));
  }
  template <std::size_t n>
  bool are_of(const std::array<at::Tensor, n>& outputs) const {
    for (std::size_t i = 0; i < n; ++i) {
      if (!is_as(outputs[i], before_[i])) return false;
    }
    return true;
  }

 private:
  static bool is_as(const at::Tensor& output, const Geometry& before);
  c10::SmallVector<Geometry, 2> before_;
};

/// Calls a meta function, and calls it again (with true) if it warns, to find out which warnings
/// recur: those are returned and not reported, the others are reported. Throws what the function
/// throws.
std::vector<c10::Warning> warnings_of_meta(c10::function_ref<void(bool again)> meta);

/// The dtype in which an operator computes integral inputs and Python's numbers, if it is a
/// floating or complex one. It follows from the default dtype of the process, which may have
/// changed when the kernel runs: so it is decided at the call. `object` is an iterator after its
/// meta function.
std::optional<at::ScalarType> floating_computation(const at::impl::MetaBase& object);

/// The rest of the plan, once the meta function has accepted the call and the outputs are written.
/// `checked`: that function checks whether sizes fit; others leave some checks to the kernel.
CallPlan plan_structured(const OpKernel& kernel, ArgumentWriter& writer, bool checked);

}  // namespace openreg::ops
