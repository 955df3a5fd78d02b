#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "ops/launch/op_kernel.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/wire/typed_arguments.h"
#include "runtime/address_space.h"

namespace openreg::ops {

/// The CPU's class of a structured operator whose meta function builds an iterator and whose
/// implementation is a loop over it. It is built once and serves each call with the same tensors,
/// which takes a sixth of the time of building it again.
template <class Native, std::size_t kOutputs>
class KeptIterator final : public Native {
 public:
  using Outputs = std::array<at::Tensor, kOutputs>;

  explicit KeptIterator(const Outputs& outputs) : outputs_(outputs) {}

  void set_output_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    if (!strides.empty() && strides != outputs_[i].strides()) suits_ = false;  // computed elsewhere
    set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_raw_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    if (sizes != outputs_[i].sizes()) suits_ = false;
    Native::set_output_raw_strided(i, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(std::int64_t i) override { return outputs_[i]; }

  /// Called after meta(): whether the iterator computes on the tensors of the command themselves,
  /// and not on copies in another dtype, which would keep the current elements. The iterator makes
  /// such copies, and so do some meta functions (of pow). Numbers are the same in each run.
  bool suits(std::span<const std::byte> command) const {
    return suits_ && std::ranges::all_of(this->operands_, [&](const at::OperandInfo& operand) {
             return !operand.original_tensor_base().defined() &&
                    lasts(operand.tensor_base(), command);
           });
  }

  /// The part of an iterator that an implementation may change, as some do.
  c10::SmallVector<std::int64_t, 24> state() const {
    c10::SmallVector<std::int64_t, 24> state(this->shape_.begin(), this->shape_.end());
    for (const auto& operand : this->operands_) {
      state.push_back(reinterpret_cast<std::int64_t>(operand.data));
      state.append(operand.stride_bytes.begin(), operand.stride_bytes.end());
    }
    return state;
  }

 private:
  /// Whether the tensor lies in the device's memory or in the command, or is a number.
  static bool lasts(const at::TensorBase& tensor, std::span<const std::byte> command) {
    const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
    const auto& space = AddressSpace::get();
    return data == nullptr || tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
           space.device_of(space.window(data)) >= 0 ||
           (!std::less<>()(data, command.data()) &&
            std::less<>()(data, command.data() + command.size()));
  }

  const Outputs outputs_;
  bool suits_ = true;
};

/// A command of such an operator that runs many times.
template <class Native, std::size_t kOutputs, class... A>
class PreparedIteration final : public PreparedCommand {
 public:
  PreparedIteration(const OpKernel& kernel, std::span<const std::byte> command)
      : command_(command), each_time_(kernel, command) {}

  void run() override {
    if (iterator_ == nullptr) {
      each_time_.run();
      if (!std::exchange(tried_, true)) keep();
      return;
    }
    const LauncherSettings settings(command_);
    compute();
    if (std::exchange(is_proven_, true)) return;
    // The operator has computed with this iterator, which must be unchanged for the next run.
    if (iterator_->state() != state_) iterator_ = nullptr;
  }

 private:
  using Iterator = KeptIterator<Native, kOutputs>;
  using Held = std::tuple<typename ArgumentOf<A>::Held...>;

  void keep() {
    arguments_ = std::make_unique<ArgumentReader>(command_);
    held_ = std::make_unique<Held>(Held{ArgumentOf<A>::read(*arguments_)...});  // braces: in order
    for (auto& output : outputs_) output = arguments_->tensor();
    RepeatedWarningFilter warnings;  // the call has reported them
    warnings.drop_all();
    auto iterator = std::make_unique<Iterator>(outputs_);
    std::apply(
        [&](auto&... each) {
          static_cast<void>(iterator->meta(ArgumentOf<A>::meta(ArgumentOf<A>::pass(each))...));
        },
        *held_);
    if (!iterator->suits(command_)) return;
    state_ = iterator->state();
    iterator_ = std::move(iterator);
  }

  void compute() {
    std::apply(
        [&](auto&... each) {
          std::apply(
              [&](const auto&... output) {
                iterator_->impl(ArgumentOf<A>::meta(ArgumentOf<A>::pass(each))..., output...);
              },
              outputs_);
        },
        *held_);
  }

  const std::span<const std::byte> command_;
  PreparedOp each_time_;
  bool tried_ = false;
  bool is_proven_ = false;
  std::unique_ptr<ArgumentReader> arguments_;
  std::unique_ptr<Held> held_;
  typename Iterator::Outputs outputs_;
  std::unique_ptr<Iterator> iterator_;
  c10::SmallVector<std::int64_t, 24> state_;
};

}  // namespace openreg::ops
