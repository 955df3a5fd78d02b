#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/launch/launch.h"
#include "ops/launch/op_kernel.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/tensors/factories.h"
#include "ops/tiers/cached_iterator.h"
#include "ops/tiers/index_by_mask.h"
#include "ops/tiers/quirks.h"
#include "ops/tiers/raw_kernels.h"
#include "ops/tiers/structured_call.h"
#include "ops/tiers/structured_outputs.h"
#include "ops/tiers/temporary_outputs.h"
#include "ops/wire/same_device.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

// A structured operator on the device is built from what PyTorch exports for each: the meta class
// (shapes, dtypes, checks), the C++ schemas, and the CPU kernel of the out form. There are three
// times as many operators as signatures, so code is generated for each signature, except where it
// calls the operator's own class and kernel.

/// The class of one operator. Its meta function runs on the calling thread, so that wrong arguments
/// raise at the call, and its requests for outputs go to OutputRequests.
template <class Base>
class StructuredObject final : public Base {
 public:
  explicit StructuredObject(OutputRequests& requests) : requests_(requests) {}

  void set_output_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set(i, sizes, strides, options, /*exactly=*/true);
  }
  void set_output_raw_strided(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    set(i, sizes, strides, options, /*exactly=*/false);
  }
  const at::Tensor& maybe_get_output(std::int64_t i) override { return requests_.output(i); }

 private:
  void set(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
           const at::TensorOptions& options, bool exactly) {
    requests_.set(i, sizes, strides, options, exactly);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Base>) {
      Base::set_output_raw_strided(i, sizes, strides, options);
    }
  }

  OutputRequests& requests_;
};

/// The functions of one operator that its signature does not determine.
template <class Functional, class Out>
struct StructuredFunctions;
template <class R, class... A, class Out>
struct StructuredFunctions<R(A...), Out> {
  /// Makes the operator's object and runs its meta function.
  std::unique_ptr<at::impl::MetaBase> (*meta)(OutputRequests&, MetaParameter<A>...);
  /// The CPU kernel of the out form.
  typename KernelSignature<Out>::Type* kernel;
  /// Runs the implementation on such an object; null if that is not a loop over an iterator.
  void (*compute)(at::impl::MetaBase&, std::span<const at::Tensor> outputs, MetaParameter<A>...);

  /// For the CPU's own class if its meta function builds an iterator (`kIterates`), else for the
  /// meta class.
  template <class Class, bool kIterates>
  static constexpr StructuredFunctions of(typename KernelSignature<Out>::Type* kernel) {
    return {.meta = &run_meta<StructuredObject<Class>>, .kernel = kernel, .compute = [] {
              if constexpr (kIterates) {
                return &run_implementation<StructuredObject<Class>>;
              } else {
                return nullptr;
              }
            }()};
  }

 private:
  template <class Object>
  static std::unique_ptr<at::impl::MetaBase> run_meta(OutputRequests& requests,
                                                      MetaParameter<A>... args) {
    auto object = std::make_unique<Object>(requests);
    static_cast<void>(object->meta(args...));
    return object;
  }
  template <class Object>
  static void run_implementation(at::impl::MetaBase& object, std::span<const at::Tensor> outputs,
                                 MetaParameter<A>... args) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      static_cast<Object&>(object).impl(args..., outputs[I]...);
    }
    (std::make_index_sequence<output_count<R>()>());
  }
};

/// A structured operator in its three forms, for the schemas of the first two:
///
///   functional  meta makes the outputs on the device, and the kernel is launched on them
///   out         meta resizes the given outputs, if they have other sizes, on the calling thread
///   in-place    the first argument is the output
///
/// `kTakesNumbers`: an elementwise operator or a reduction, which takes 0-dim CPU tensors as
/// numbers; its meta function checks the devices, and is that of an iterator.
template <bool kTakesNumbers, class Functional, class Out>
class StructuredOperator;

template <bool kTakesNumbers, class R, class... A, class RefR, class... All>
class StructuredOperator<kTakesNumbers, R(A...), RefR(All...)> : public OpKernel {
 public:
  using Functions = StructuredFunctions<R(A...), RefR(All...)>;

  StructuredOperator(const char* name, Functions functions)
      : OpKernel(name, &run, {},
                 {.widened = widened_dtypes(name),
                  .raw = raw_kernel(name),
                  .make_cached = functions.compute ? &make_cached : nullptr}),
        functions_(functions),
        takes_any_strides_(!has_quirk(name, Quirk::kTakesContiguous)),
        output_support_(output_support(name, /*iterates=*/kTakesNumbers)) {}

  /// Registers the first two forms, as functions with exactly the types of the schemas.
  void register_forms(torch::Library& library, const char* out) const {
    library.impl(base_name(name()), [this](A... args) -> R {
      Outputs outputs;
      call(Form::kFunctional, outputs, args...);
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return R(std::move(outputs[I])...);
      }
      (std::make_index_sequence<kOutputs>());
    });
    library.impl(out, [this](All... all) -> RefR {
      const auto arguments = std::forward_as_tuple(all...);
      return [&]<std::size_t... I, std::size_t... O>(std::index_sequence<I...>,
                                                     std::index_sequence<O...>)
          ->RefR {
        Outputs outputs{std::get<kInputs + O>(arguments)...};
        call_out(outputs, std::get<I>(arguments)...);
        return RefR(std::get<kInputs + O>(arguments)...);
      }
      (std::make_index_sequence<kInputs>(), std::make_index_sequence<kOutputs>());
    });
  }

  /// Registers the in-place form, whose schema is the type of the last argument.
  template <class... Rest>
  void register_inplace(torch::Library& library, const char* name,
                        at::Tensor& (*)(at::Tensor&, Rest...)) const {
    library.impl(name, [this](at::Tensor& self, Rest... rest) -> at::Tensor& {
      Outputs outputs{self};
      call(Form::kInplace, outputs, self, rest...);
      return self;
    });
  }

 private:
  static constexpr std::size_t kInputs = sizeof...(A);
  static constexpr std::size_t kOutputs = output_count<R>();
  using Outputs = std::array<at::Tensor, kOutputs>;

  /// The cached iterator of an operator that is a loop over one.
  class CachedIteration;

  static void run(const OpKernel& kernel, ArgumentReader& reader) {
    const auto& self = static_cast<const StructuredOperator&>(kernel);
    KernelCall<RefR(All...)>::run(reader, self.functions_.kernel);
  }
  static std::unique_ptr<CachedCommand> make_cached(const OpKernel& kernel,
                                                    std::span<const std::byte> command) {
    auto made =
        std::make_unique<CachedIteration>(static_cast<const StructuredOperator&>(kernel), command);
    return made->is_usable() ? std::move(made) : nullptr;
  }

  void call(Form form, Outputs& outputs, const std::remove_reference_t<A>&... args) const {
    using Override = SignatureOverride<R(A...)>;
    if (Override::answers(form, outputs, args...)) return;
    if (!takes_any_strides_) return call_with(form, outputs, contiguous(args)...);
    call_with(form, outputs, Override::argument(args, args...)...);
  }

  template <class T>
  static T contiguous(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return argument.contiguous();
    } else {
      return argument;
    }
  }

  void call_with(Form form, Outputs& outputs, const std::remove_reference_t<A>&... args) const {
    StructuredCall tensors(kTakesNumbers);
    (tensors.add(args), ...);
    const auto device = tensors.device();
    if (!device) return plan(form, outputs, nullptr, args...);
    ArgumentWriter writer(name(), *device);
    std::int16_t number = 0;
    ((writer.at_argument(number++), ArgumentOf<A>::write(writer, args)), ...);
    writer.add_to_signature(form);
    if (form != Form::kFunctional) write_outputs(writer, outputs, ArgumentPlace::kOut);
    const auto signature = writer.signature(this);
    const auto known = PlanCache::find(signature);
    if (!known) return plan(form, outputs, &signature, args...);
    if (form == Form::kFunctional) {
      auto& stream = backend::current_stream(device->index());
      for (std::size_t i = 0; i < kOutputs; ++i)
        outputs[i] = make_result(stream, known->results[i]);
      write_outputs(writer, outputs, ArgumentPlace::kResult);
    }
    launch(*this, writer, *known);
  }

  void call_out(Outputs& outputs, const std::remove_reference_t<A>&... args) const {
    const bool none = output_support_ == OutputSupport::kNone;
    if (output_support_ == OutputSupport::kAnyStrides || (!none && have_default_strides(outputs)))
      return call(Form::kOut, outputs, args...);
    Outputs results;
    for (std::size_t i = 0; i < kOutputs; ++i)
      results[i] = none ? at::empty({0}, outputs[i].options()) : temporary_output(outputs[i]);
    call(Form::kOut, results, args...);
    for (std::size_t i = 0; i < kOutputs; ++i) copy_to_output(results[i], outputs[i]);
  }

  static void write_outputs(ArgumentWriter& writer, const Outputs& outputs, std::int16_t place) {
    writer.at_argument(place);
    for (const auto& output : outputs) writer.tensor(output, Access::kWrite);
  }

  /// Runs the meta function, makes the call, and keeps the plan for calls with the same signature.
  /// `signature` is null if a signature cannot distinguish the calls.
  void plan(Form form, Outputs& outputs, const SignatureView* signature,
            const std::remove_reference_t<A>&... args) const {
    if constexpr (!kTakesNumbers) {
      SameDevice devices(name());
      (check_device(devices, args), ...);
    }
    const OutputSizes given(outputs);
    auto outputs_again = outputs;
    OutputRequests requests(form, outputs);
    // Later calls do not run the meta function, so what it calls is not shown for this one either.
    std::optional<at::RecordFunctionGuard> hidden;
    if (signature != nullptr) hidden.emplace(/*is_enabled=*/false);
    std::unique_ptr<at::impl::MetaBase> object;
    const auto warnings = warnings_of_meta([&](bool again) {
      if (!again) {
        object = functions_.meta(requests, ArgumentOf<A>::meta(args)...);
      } else {
        OutputRequests repeated(form, outputs_again);
        functions_.meta(repeated, ArgumentOf<A>::meta(args)...);
      }
    });
    ArgumentWriter writer(name(), outputs[0].device());
    const auto dtype = kTakesNumbers && (takes_default_dtype(args) && ...)
                           ? floating_computation(*object)
                           : std::nullopt;
    std::int16_t number = 0;
    ((writer.at_argument(number++), write(writer, args, dtype)), ...);
    write_outputs(writer, outputs,
                  form == Form::kFunctional ? ArgumentPlace::kResult : ArgumentPlace::kOut);
    auto made = plan_structured(*this, writer, kTakesNumbers);
    made.warnings.insert(made.warnings.end(), warnings.begin(), warnings.end());
    hidden.reset();
    if (signature == nullptr || dtype || (form == Form::kOut && !given.are_of(outputs))) {
      return launch(*this, writer, made);
    }
    if (form == Form::kFunctional) {
      for (const auto& output : outputs) made.results.push_back(Geometry::of(output));
    }
    launch(*this, writer, *PlanCache::insert(*signature, std::move(made)));
  }

  template <class T>
  static void check_device(SameDevice& devices, const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      devices.check(argument);
    } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
      if (argument) devices.check(*argument);
    } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
      for (const auto& tensor : argument) devices.check(tensor);
    }  // lists of indices may be on the CPU
  }

  template <class T>
  static bool takes_default_dtype(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return at::isIntegralType(argument.scalar_type(), /*includeBool=*/true) ||
             argument.unsafeGetTensorImpl()->is_wrapped_number();
    } else {
      return !std::is_same_v<T, at::ITensorListRef>;  // values do not count, lists stay as they are
    }
  }

  template <class T>
  static void write(ArgumentWriter& writer, const T& argument,
                    std::optional<at::ScalarType> computation) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (computation) {
        writer.tensor(writer.keep_alive(argument.to(*computation)));
        return;
      }
    }
    ArgumentOf<T>::write(writer, argument);
  }

  const Functions functions_;
  const bool takes_any_strides_;
  const OutputSupport output_support_;
};

template <bool kTakesNumbers, class R, class... A, class RefR, class... All>
class StructuredOperator<kTakesNumbers, R(A...), RefR(All...)>::CachedIteration final
    : public CachedCommand {
 public:
  CachedIteration(const StructuredOperator& op, std::span<const std::byte> command)
      : op_(op), arguments_(command) {
    // Otherwise the iterator would be over the tensors themselves.
    if (op_.widens(arguments_)) return;
    held_.emplace(Held{ArgumentOf<A>::read(arguments_)...});  // braces: in order
    for (auto& output : outputs_) output = arguments_.tensor();
    RepeatedWarningFilter warnings;  // the call has reported them
    warnings.drop_all();
    with_arguments([&](auto&&... args) { iterator_ = op_.functions_.meta(requests_, args...); });
    if (requests_.are_met() && computes_in_place(iterator(), arguments_))
      operands_ = storages_of_operands(iterator(), command);
  }

  bool is_usable() const { return operands_.has_value(); }

  bool run(std::span<const std::byte> command) override {
    arguments_.move_to(command, [this](std::uint32_t storage, std::ptrdiff_t by) {
      move_operands(iterator(), *operands_, storage, by);
    });
    const auto before = is_proven_ ? IteratorState() : state_of(iterator());
    with_arguments([&](auto&&... args) { op_.functions_.compute(*iterator_, outputs_, args...); });
    if (std::exchange(is_proven_, true)) return true;
    // The operator has computed with this iterator, which must be unchanged for the next run.
    return state_of(iterator()) == before;
  }

 private:
  using Held = std::tuple<typename ArgumentOf<A>::Held...>;

  template <class Function>
  void with_arguments(Function&& function) {
    std::apply([&](auto&... each) { function(ArgumentOf<A>::meta(ArgumentOf<A>::pass(each))...); },
               *held_);
  }

  at::TensorIteratorBase& iterator() const {
    return static_cast<at::TensorIteratorBase&>(*iterator_);
  }

  const StructuredOperator& op_;
  bool is_proven_ = false;
  ArgumentReader arguments_;
  std::optional<Held> held_;
  Outputs outputs_;
  OutputRequests requests_{Form::kCached, outputs_};
  std::unique_ptr<at::impl::MetaBase> iterator_;
  std::optional<OperandStorages> operands_;
};

/// Registers an operator's functional and out forms, and its in-place one if it has one. `Native`
/// is the CPU's own class if its meta function builds an iterator; else void.
template <class Meta, class Native, class Functional, class Out,
          typename KernelSignature<typename Out::schema>::Type* kKernel, class Inplace = void>
void register_structured(torch::Library& library) {
  constexpr bool kTakesNumbers = std::is_base_of_v<at::TensorIteratorBase, Meta>;
  constexpr bool kIterates = !std::is_void_v<Native>;
  using Class = std::conditional_t<kIterates, Native, Meta>;
  using Operator =
      StructuredOperator<kTakesNumbers, typename Functional::schema, typename Out::schema>;
  static const Operator op(operator_name(Functional::name, Functional::overload_name),
                           Operator::Functions::template of<Class, kIterates>(kKernel));
  op.register_forms(library, operator_name(base_name(Out::name), Out::overload_name));
  if constexpr (!std::is_void_v<Inplace>) {
    op.register_inplace(library, operator_name(base_name(Inplace::name), Inplace::overload_name),
                        static_cast<typename Inplace::schema*>(nullptr));
  }
}

}  // namespace openreg::ops
