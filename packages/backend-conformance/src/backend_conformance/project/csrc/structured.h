#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "launch.h"

// Kernels for PyTorch's "structured" operators. PyTorch has a class for each, whose meta() checks
// the arguments and tells the size of the result. A kernel for the form with `out` serves the other
// forms too: PyTorch allocates the result, and calls it.
namespace torch_acme {

// Runs meta(), and resizes `out` as it says.
template <class Meta>
class Result final : public Meta {
 public:
  explicit Result(const at::Tensor& out) : out_(out) {}

  void set_output_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_raw_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    TORCH_CHECK(options.dtype() == out_.dtype(), "Expected out tensor to have dtype ",
                options.dtype(), ", but got ", out_.dtype(), " instead");
    if (at::native::resize_output(out_, sizes) && !strides.empty())
      out_.as_strided_(sizes, strides);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      Meta::set_output_raw_strided(i, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(std::int64_t) override { return out_; }

 private:
  at::Tensor out_;
};

// What a command keeps of an argument. A scalar on the CPU may change after the call.
inline at::Tensor kept(const at::Tensor& input) {
  return is_ours(input) ? to_read(input) : input.clone();
}
inline at::Tensor kept(at::Tensor& output) { return to_write(output); }
template <class Value>
Value kept(const Value& value) {
  static_assert(std::is_arithmetic_v<Value> || std::is_same_v<Value, at::Scalar>,
                "a command outlives the call, so it must own what it keeps");
  return value;
}

// Elementwise operators convert, products do not.
template <class Meta>
void check_input(const at::Tensor& input, const at::Tensor& out) {
  TORCH_CHECK(input.device() == out.device() || (input.is_cpu() && input.dim() == 0),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              input.device(), " and ", out.device());
  if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Meta>) {
    TORCH_CHECK(input.dtype() == out.dtype(), "expected tensors of the same dtype, but got ",
                input.dtype(), " and ", out.dtype());
  }
}
template <class Meta, class Value>
void check_input(const Value&, const at::Tensor&) {}

/// A kernel for Operator, such as at::_ops::mm_out, whose checks are Meta, such as
/// at::meta::structured_mm. The command is the CPU's kernel; a real device launches one of its own.
template <class Operator, class Meta, class Signature = typename Operator::schema>
struct Structured;

template <class Operator, class Meta, class... Arguments>
struct Structured<Operator, Meta, at::Tensor&(Arguments...)> {
  static at::Tensor& run(Arguments... arguments) {
    const auto all = std::forward_as_tuple(arguments...);
    return launch_on(all, std::make_index_sequence<sizeof...(Arguments) - 1>());
  }

 private:
  template <class All, std::size_t... kInputs>
  static at::Tensor& launch_on(const All& all, std::index_sequence<kInputs...>) {
    at::Tensor& out = std::get<sizeof...(kInputs)>(all);
    (check_input<Meta>(std::get<kInputs>(all), out), ...);
    const c10::DeviceGuard guard(out.device());
    Result<Meta>(out).meta(std::get<kInputs>(all)...);
    launch(out,
           [inputs = std::tuple(kept(std::get<kInputs>(all))...), result = kept(out)]() mutable {
             Operator::call(std::get<kInputs>(inputs)..., result);
           });
    return out;
  }
};

}  // namespace torch_acme
