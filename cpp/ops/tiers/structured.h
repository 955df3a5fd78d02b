#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "ops/launch/launch.h"
#include "ops/tiers/structured_outputs.h"
#include "ops/wire/same_device.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

/// Where a structured operator's outputs come from: made here, given by the caller, or the first
/// argument.
enum class Form { kFunctional, kOut, kInplace };

/// Runs PyTorch's meta function on the calling thread, so that what is wrong with the arguments
/// raises at the call, and makes, resizes or checks the outputs as it asks.
template <class Meta, std::size_t kOutputs>
class MetaCall final : public Meta {
 public:
  explicit MetaCall(Form form) : form_(form) {}

  void set_output_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_raw_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    switch (form_) {
      case Form::kFunctional:
        outputs_[i] = make_output(sizes, strides, options);
        break;
      case Form::kOut:
        resize_output(outputs_[i], sizes, strides, options);
        break;
      case Form::kInplace:
        check_inplace(outputs_[i], sizes, options);
        break;
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, sizes, strides, options);
    }
  }
  const at::Tensor& maybe_get_output(std::int64_t i) override { return outputs_[i]; }

  at::Tensor& output(std::size_t i) { return outputs_[i]; }

  /// The dtype that integral inputs and Python's numbers have to be computed in, if it is a
  /// floating or complex one. It follows from the default dtype, which is the process's and may be
  /// another when the kernel runs: so it is decided here, at the call.
  std::optional<at::ScalarType> floating_computation() const {
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      const auto dtype = this->common_dtype();
      if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return dtype;
    }
    return std::nullopt;
  }

 private:
  Form form_;
  std::array<at::Tensor, kOutputs> outputs_;
};

/// A structured operator on the device, in its three forms, out of what PyTorch exports for each:
/// the meta class (shapes, dtypes, checks), the C++ schemas, and the CPU kernel of the out form.
///
///   functional  meta makes the outputs on the device; the kernel is launched on them
///   out         meta resizes the given outputs, which do not always arrive sized, on the calling
///               thread
///   in-place    the first argument is the output
template <class Meta, class Functional, class Out,
          typename KernelSignature<typename Out::schema>::Type* kKernel,
          class FunctionalSchema = typename Functional::schema>
struct Structured;

template <class Meta, class Functional, class Out,
          typename KernelSignature<typename Out::schema>::Type* kKernel, class R, class... A>
struct Structured<Meta, Functional, Out, kKernel, R(A...)> {
  static constexpr std::size_t kInputs = sizeof...(A);
  static constexpr std::size_t kOutputs = output_count<R>();
  using Call = MetaCall<Meta, kOutputs>;
  // Elementwise operators and reductions take 0-dim CPU tensors as numbers; their meta functions
  // see to the devices.
  static constexpr bool kTakesNumbers = std::is_base_of_v<at::TensorIteratorBase, Meta>;

  static R functional(A... args) {
    Call call(Form::kFunctional);
    submit(call, args...);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return R(std::move(call.output(I))...);
    }
    (std::make_index_sequence<kOutputs>());
  }

  static void out(const std::array<at::Tensor, kOutputs>& outs, A... args) {
    Call call(Form::kOut);
    for (std::size_t i = 0; i < kOutputs; ++i) call.output(i) = outs[i];
    submit(call, args...);
  }

  static void inplace(A... args) {
    Call call(Form::kInplace);
    call.output(0) = std::get<0>(std::forward_as_tuple(args...));
    submit(call, args...);
  }

 private:
  static void run(std::span<const std::byte> command) {
    KernelCall<typename Out::schema>::run(command, kKernel);
  }
  static inline const Kernel kernel_{operator_name(Functional::name, Functional::overload_name),
                                     &run};

  static void submit(Call& call, A... args) {
    if constexpr (!kTakesNumbers) {
      SameDevice devices(kernel_.name());
      (check_device(devices, args), ...);
    }
    call.meta(ArgumentOf<A>::meta(args)...);
    // Other meta functions leave it to kernels whether some sizes fit (the bias of addmm).
    ArgumentWriter writer(kernel_.name(), call.output(0).device(),
                          kTakesNumbers ? Detail::kDtypes : Detail::kEqualSizes);
    const auto dtype = all_take_default_dtype(args...) ? call.floating_computation() : std::nullopt;
    (write(writer, args, dtype), ...);
    for (std::size_t i = 0; i < kOutputs; ++i) writer.tensor(call.output(i), Access::kWrite);
    launch(kernel_, writer, Tier::kStructured);
  }

  template <class T>
  static void check_device(SameDevice& devices, const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      devices.see(argument);
    } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
      if (argument) devices.see(*argument);
    } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
      for (const auto& tensor : argument) devices.see(tensor);
    }  // lists of indices may be on the CPU
  }

  template <class T>
  static bool takes_default_dtype(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return at::isIntegralType(argument.scalar_type(), /*includeBool=*/true) ||
             argument.unsafeGetTensorImpl()->is_wrapped_number();
    } else {
      return !std::is_same_v<T, at::ITensorListRef>;  // values do not count, lists are left alone
    }
  }
  static bool all_take_default_dtype(const std::remove_reference_t<A>&... args) {
    return (takes_default_dtype(args) && ...);
  }

  template <class T>
  static void write(ArgumentWriter& writer, const T& argument,
                    std::optional<at::ScalarType> computation) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (computation) {
        writer.tensor(writer.hold(argument.to(*computation)));
        return;
      }
    }
    ArgumentOf<T>::write(writer, argument);
  }
};

/// The three forms as PyTorch registers them: functions with exactly the types of the schemas.
template <class Operator, class OutSchema>
struct OutForm;
template <class Operator, class R, class... All>
struct OutForm<Operator, R(All...)> {
  static R call(All... all) {
    const auto arguments = std::forward_as_tuple(all...);
    [&]<std::size_t... In, std::size_t... Out>(std::index_sequence<In...>,
                                               std::index_sequence<Out...>) {
      Operator::out({std::get<Operator::kInputs + Out>(arguments)...}, std::get<In>(arguments)...);
    }
    (std::make_index_sequence<Operator::kInputs>(), std::make_index_sequence<Operator::kOutputs>());
    return [&]<std::size_t... Out>(std::index_sequence<Out...>)->R {
      return R(std::get<Operator::kInputs + Out>(arguments)...);
    }
    (std::make_index_sequence<Operator::kOutputs>());
  }
};

template <class Operator, class InplaceSchema>
struct InplaceForm;
template <class Operator, class... Rest>
struct InplaceForm<Operator, at::Tensor&(at::Tensor&, Rest...)> {
  static at::Tensor& call(at::Tensor& self, Rest... rest) {
    Operator::inplace(self, rest...);
    return self;
  }
};

/// Registers an operator's functional and out forms, and its in-place one if it has one.
template <class Operator, class Functional, class Out, class Inplace = void>
void register_structured(torch::Library& library) {
  library.impl(operator_name(base_name(Functional::name), Functional::overload_name),
               TORCH_FN(Operator::functional));
  library.impl(operator_name(base_name(Out::name), Out::overload_name),
               TORCH_FN((OutForm<Operator, typename Out::schema>::call)));
  if constexpr (!std::is_void_v<Inplace>) {
    library.impl(operator_name(base_name(Inplace::name), Inplace::overload_name),
                 TORCH_FN((InplaceForm<Operator, typename Inplace::schema>::call)));
  }
}

}  // namespace openreg::ops
