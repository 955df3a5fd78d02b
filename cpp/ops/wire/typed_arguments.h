#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/generator.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// How one type of operator argument travels. For a parameter type T of an operator's schema:
///   write(writer, value)  at the launch
///   Held read(reader)     on the device: keeps the value while the kernel runs
///   pass(held)            what is passed to the kernel
///   meta(value)           what is passed to PyTorch's meta function (which takes borrowed
///                         optionals and plain integers)
/// The primary template is for trivially copyable types: bool, int64_t, double, ScalarType,
/// optionals of them.
template <class T>
struct Argument {
  static_assert(std::is_trivially_copyable_v<T>, "give this type a specialisation of Argument");
  using Held = T;
  static void write(ArgumentWriter& writer, const T& value) { writer.value(value); }
  static Held read(ArgumentReader& reader) { return reader.value<T>(); }
  static T pass(Held& held) { return held; }
  static T meta(const T& value) { return value; }
};

template <>
struct Argument<at::Tensor> {
  using Held = at::Tensor;
  static void write(ArgumentWriter& writer, const at::Tensor& value) { writer.tensor(value); }
  static Held read(ArgumentReader& reader) { return reader.tensor(); }
  static at::Tensor& pass(Held& held) { return held; }
  static const at::Tensor& meta(const at::Tensor& value) { return value; }
};

template <>
struct Argument<std::optional<at::Tensor>> {
  using Held = std::optional<at::Tensor>;
  static void write(ArgumentWriter& writer, const Held& value) {
    writer.tensor(value ? *value : at::Tensor());
  }
  static Held read(ArgumentReader& reader) {
    const auto& tensor = reader.tensor();
    return tensor.defined() ? Held(tensor) : std::nullopt;
  }
  static const Held& pass(Held& held) { return held; }
  static at::OptionalTensorRef meta(const Held& value) {
    return value && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
  }
};

template <>
struct Argument<at::Scalar> {
  using Held = at::Scalar;
  static void write(ArgumentWriter& writer, const at::Scalar& value) { writer.number(value); }
  static Held read(ArgumentReader& reader) {
    const auto type = reader.value<at::ScalarType>();
    if (at::isComplexType(type)) return reader.value<c10::complex<double>>();
    if (at::isFloatingType(type)) return reader.value<double>();
    if (type == at::kUInt64) return reader.value<std::uint64_t>();
    const auto integer = reader.value<std::int64_t>();
    return type == at::kBool ? at::Scalar(integer != 0) : at::Scalar(integer);
  }
  static const at::Scalar& pass(Held& held) { return held; }
  static const at::Scalar& meta(const at::Scalar& value) { return value; }
};

/// A random kernel's seed and offset; for a captured command they differ from run to run.
template <>
struct Argument<backend::PhiloxState> {
  using Held = backend::PhiloxState;
  static void write(ArgumentWriter& writer, Held value) { writer.encode(value); }
  static Held read(ArgumentReader& reader) {
    return backend::philox_of_command(reader.value<Held>());
  }
  static Held pass(Held& held) { return held; }
};

/// How an optional argument travels: whether there is a value, then the value. `Value`: the type in
/// the operator's schema.
template <class T, class Value = std::optional<T>>
struct OptionalArgument {
  using Held = std::optional<T>;
  static void write(ArgumentWriter& writer, const Value& value) {
    writer.value(value.has_value());
    if (value) Argument<T>::write(writer, *value);
  }
  static Held read(ArgumentReader& reader) {
    return reader.value<bool>() ? Held(Argument<T>::read(reader)) : std::nullopt;
  }
  static const Held& pass(Held& held) { return held; }
};

template <>
struct Argument<std::optional<at::Scalar>> : OptionalArgument<at::Scalar> {
  static at::OptionalScalarRef meta(const Held& value) {
    return value ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
  }
};

template <>
struct Argument<at::IntArrayRef> {
  using Held = at::IntArrayRef;
  static void write(ArgumentWriter& writer, at::IntArrayRef value) {
    writer.array(value.data(), value.size());
  }
  static Held read(ArgumentReader& reader) {
    const auto values = reader.array<std::int64_t>();
    return {values.data(), values.size()};
  }
  static at::IntArrayRef pass(Held& held) { return held; }
  static at::IntArrayRef meta(at::IntArrayRef value) { return value; }
};

template <>
struct Argument<at::OptionalIntArrayRef>
    : OptionalArgument<at::IntArrayRef, at::OptionalIntArrayRef> {
  static at::OptionalIntArrayRef meta(at::OptionalIntArrayRef value) { return value; }
};

/// Sizes are known here: symbolic integers become plain ones, for the kernel too.
template <>
struct Argument<c10::SymInt> {
  using Held = std::int64_t;
  static void write(ArgumentWriter& writer, const c10::SymInt& value) { writer.value(meta(value)); }
  static Held read(ArgumentReader& reader) { return reader.value<std::int64_t>(); }
  static std::int64_t pass(Held& held) { return held; }
  static std::int64_t meta(const c10::SymInt& value) { return value.guard_int(__FILE__, __LINE__); }
};

template <>
struct Argument<c10::SymIntArrayRef> : Argument<at::IntArrayRef> {
  using Argument<at::IntArrayRef>::meta;
  static void write(ArgumentWriter& writer, c10::SymIntArrayRef value) {
    Argument<at::IntArrayRef>::write(writer, meta(value));
  }
  static at::IntArrayRef meta(c10::SymIntArrayRef value) { return C10_AS_INTARRAYREF_SLOW(value); }
};

template <>
struct Argument<at::OptionalSymIntArrayRef> : Argument<at::OptionalIntArrayRef> {
  using Argument<at::OptionalIntArrayRef>::meta;
  static void write(ArgumentWriter& writer, at::OptionalSymIntArrayRef value) {
    Argument<at::OptionalIntArrayRef>::write(writer, meta(value));
  }
  static at::OptionalIntArrayRef meta(at::OptionalSymIntArrayRef value) {
    return value ? at::OptionalIntArrayRef(C10_AS_INTARRAYREF_SLOW(*value))
                 : at::OptionalIntArrayRef();
  }
};

template <>
struct Argument<std::string_view> {
  using Held = std::string_view;
  static void write(ArgumentWriter& writer, std::string_view value) {
    writer.array(value.data(), value.size());
  }
  static Held read(ArgumentReader& reader) {
    const auto text = reader.array<char>();
    return {text.data(), text.size()};
  }
  static std::string_view pass(Held& held) { return held; }
  static std::string_view meta(std::string_view value) { return value; }
};

template <>
struct Argument<std::optional<std::string_view>> : OptionalArgument<std::string_view> {
  static Held meta(Held value) { return value; }
};

template <>
struct Argument<at::ITensorListRef> {
  using Held = std::vector<at::Tensor>;
  static void write(ArgumentWriter& writer, const at::ITensorListRef& value) {
    writer.encode<std::uint64_t>(value.size());
    writer.add_signature_word(value.size());
    for (const auto& tensor : value) writer.tensor(tensor);
  }
  static Held read(ArgumentReader& reader) {
    Held tensors(reader.count());
    for (auto& tensor : tensors) tensor = reader.tensor();
    return tensors;
  }
  static at::ITensorListRef pass(Held& held) { return held; }
  static const at::ITensorListRef& meta(const at::ITensorListRef& value) { return value; }
};

/// A CPU tensor's copy on the device, for a command that is launched next: it need not have arrived
/// there, but must no longer read the tensor.
inline at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/!tensor.is_pinned());
}

/// The indices of advanced indexing. Those on the CPU are copied to the device first, but for 0-dim
/// ones, which are numbers.
template <>
struct Argument<c10::List<std::optional<at::Tensor>>> {
  using List = c10::List<std::optional<at::Tensor>>;
  using Held = List;
  static void write(ArgumentWriter& writer, const List& value) {
    writer.encode<std::uint64_t>(value.size());
    writer.add_signature_word(value.size());
    for (const auto& element : value) {
      const std::optional<at::Tensor> index = element;
      const auto tensor = index ? *index : at::Tensor();
      const bool copied = tensor.defined() && tensor.is_cpu() && tensor.dim() > 0;
      writer.tensor(copied ? writer.keep_alive(on_device(tensor, writer.device())) : tensor);
    }
  }
  static Held read(ArgumentReader& reader) {
    List list;
    for (auto left = reader.count(); left > 0; --left) {
      const auto& tensor = reader.tensor();
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
    }
    return list;
  }
  static const List& pass(Held& held) { return held; }
  static at::IOptTensorListRef meta(const List& value) { return value; }
};

template <class T>
using ArgumentOf = Argument<std::remove_cv_t<std::remove_reference_t<T>>>;

/// The type of a meta function's parameter for schema type T.
template <class T>
using MetaParameter = decltype(ArgumentOf<T>::meta(std::declval<const std::remove_cvref_t<T>&>()));

/// The type of a CPU kernel's parameter for schema type T: plain integers for symbolic ones.
template <class T>
struct KernelParameter {
  using Type = T;
};
template <>
struct KernelParameter<c10::SymInt> {
  using Type = std::int64_t;
};
template <>
struct KernelParameter<c10::SymIntArrayRef> {
  using Type = at::IntArrayRef;
};
template <>
struct KernelParameter<at::OptionalSymIntArrayRef> {
  using Type = at::OptionalIntArrayRef;
};

/// The signature of the CPU kernel of an operator with the given C++ schema.
template <class Schema>
struct KernelSignature;
template <class R, class... A>
struct KernelSignature<R(A...)> {
  using Type = R(typename KernelParameter<A>::Type...);
};

/// Reads a command's arguments and calls a CPU kernel with them.
template <class Schema>
struct KernelCall;
template <class R, class... A>
struct KernelCall<R(A...)> {
  template <class Function>
  static void run(ArgumentReader& reader, Function* kernel) {
    std::tuple<typename ArgumentOf<A>::Held...> held{
        ArgumentOf<A>::read(reader)...};  // braces: in order
    std::apply([&](auto&... each) { kernel(ArgumentOf<A>::pass(each)...); }, held);
  }
};

}  // namespace openreg::ops
