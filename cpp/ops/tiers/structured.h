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

#include "ops/launch/submit.h"
#include "ops/tiers/kept_iterator.h"
#include "ops/tiers/structured_call.h"
#include "ops/tiers/structured_outputs.h"
#include "ops/wire/same_device.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

/// Where a structured operator's outputs come from: made here, given by the caller, or the first
/// argument.
enum class Form { kFunctional, kOut, kInplace };

/// Runs PyTorch's meta function on the calling thread, so that wrong arguments raise at the call,
/// and makes, resizes or checks the outputs as that function requests.
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

  /// The dtype in which integral inputs and Python's numbers must be computed, if it is a floating
  /// or complex one. It follows from the default dtype of the process, which may have changed when
  /// the kernel runs: so it is decided here, at the call.
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

/// A structured operator on the device, in its three forms, built from what PyTorch exports for
/// each: the meta class (shapes, dtypes, checks), the C++ schemas, and the CPU kernel of the out
/// form.
///
///   functional  meta makes the outputs on the device; the kernel is launched on them
///   out         meta resizes the given outputs, which do not always arrive sized, on the calling
///               thread
///   in-place    the first argument is the output
///
/// `Native` is the CPU's own class if its meta function builds an iterator; else void.
template <class Meta, class Native, class Functional, class Out,
          typename KernelSignature<typename Out::schema>::Type* kKernel,
          class FunctionalSchema = typename Functional::schema>
struct Structured;

template <class Meta, class Native, class Functional, class Out,
          typename KernelSignature<typename Out::schema>::Type* kKernel, class R, class... A>
struct Structured<Meta, Native, Functional, Out, kKernel, R(A...)> {
  static constexpr std::size_t kInputs = sizeof...(A);
  static constexpr std::size_t kOutputs = output_count<R>();
  using Call = MetaCall<Meta, kOutputs>;
  // Elementwise operators and reductions take 0-dim CPU tensors as numbers; their meta functions
  // check the devices.
  static constexpr bool kTakesNumbers = std::is_base_of_v<at::TensorIteratorBase, Meta>;

  using Outputs = std::array<at::Tensor, kOutputs>;

  static R functional(A... args) {
    Outputs outputs;
    call(Form::kFunctional, outputs, args...);
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return R(std::move(outputs[I])...); }
    (std::make_index_sequence<kOutputs>());
  }

  static void out(Outputs outputs, A... args) { call(Form::kOut, outputs, args...); }

  static void inplace(A... args) {
    Outputs outputs{std::get<0>(std::forward_as_tuple(args...))};
    call(Form::kInplace, outputs, args...);
  }

 private:
  static void run(const OpKernel&, ArgumentReader& reader) {
    KernelCall<typename Out::schema>::run(reader, kKernel);
  }
  static std::unique_ptr<PreparedCommand> prepare(const Kernel& kernel,
                                                  std::span<const std::byte> command) {
    const auto& op_kernel = static_cast<const OpKernel&>(kernel);
    if constexpr (std::is_void_v<Native>) {
      return std::make_unique<PreparedOp>(op_kernel, command);
    } else {
      return std::make_unique<PreparedIteration<Native, kOutputs, A...>>(op_kernel, command);
    }
  }
  static inline const OpKernel kernel_{
      operator_name(Functional::name, Functional::overload_name), &run, {.prepare = &prepare}};

  static void call(Form form, Outputs& outputs, A... args) {
    StructuredCall tensors(kTakesNumbers);
    (tensors.see(args), ...);
    const auto device = tensors.device();
    if (!device) return plan(form, outputs, nullptr, args...);
    ArgumentWriter writer(kernel_.name(), *device);
    (ArgumentOf<A>::write(writer, args), ...);
    writer.sign_value(form);
    if (form != Form::kFunctional) write_outputs(writer, outputs);
    const auto signature = writer.signature(&kernel_);
    const auto known = PlanCache::find(signature);
    if (!known) return plan(form, outputs, &signature, args...);
    if (form == Form::kFunctional) {
      auto& stream = backend::current_stream(device->index());
      for (std::size_t i = 0; i < kOutputs; ++i)
        outputs[i] = make_result(stream, known->results[i]);
      write_outputs(writer, outputs);
    }
    submit(kernel_, writer, *known);
  }

  static void write_outputs(ArgumentWriter& writer, const Outputs& outputs) {
    for (const auto& output : outputs) writer.tensor(output, Access::kWrite);
  }

  /// Runs the meta function, makes the call, and keeps the plan for calls with the same signature,
  /// which is null if a signature cannot distinguish the calls.
  static void plan(Form form, Outputs& outputs, const SignatureView* signature, A... args) {
    if constexpr (!kTakesNumbers) {
      SameDevice devices(kernel_.name());
      (check_device(devices, args), ...);
    }
    Call meta_call(form);
    for (std::size_t i = 0; i < kOutputs; ++i) meta_call.output(i) = outputs[i];
    const OutputSizes given(outputs);
    const auto warnings = warnings_of_meta([&](bool again) {
      if (!again) return static_cast<void>(meta_call.meta(ArgumentOf<A>::meta(args)...));
      Call repeated(form);
      for (std::size_t i = 0; i < kOutputs; ++i) repeated.output(i) = outputs[i];
      static_cast<void>(repeated.meta(ArgumentOf<A>::meta(args)...));
    });
    for (std::size_t i = 0; i < kOutputs; ++i) outputs[i] = meta_call.output(i);
    ArgumentWriter writer(kernel_.name(), outputs[0].device());
    const auto dtype =
        all_take_default_dtype(args...) ? meta_call.floating_computation() : std::nullopt;
    (write(writer, args, dtype), ...);
    write_outputs(writer, outputs);
    auto made = plan_structured(kernel_, writer, kTakesNumbers);
    made.warnings.insert(made.warnings.end(), warnings.begin(), warnings.end());
    if (signature == nullptr || dtype || (form == Form::kOut && !given.are_of(outputs))) {
      return submit(kernel_, writer, made);
    }
    if (form == Form::kFunctional) {
      for (const auto& output : outputs) made.results.push_back(Geometry::of(output));
    }
    submit(kernel_, writer, *PlanCache::insert(*signature, std::move(made)));
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
      return !std::is_same_v<T, at::ITensorListRef>;  // values do not count, lists are kept
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
