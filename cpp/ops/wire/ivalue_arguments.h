#pragma once

#include <ATen/core/List.h>
#include <ATen/core/alias_info.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>

#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a schema says about an argument: whether it is or contains tensors, and whether the
/// operator changes it or what it contains.
bool holds_tensors(const c10::Type& type);
bool is_written(const c10::AliasInfo* alias);

/// Whether arguments of this type of an operator's schema can travel in a command. Generators,
/// streams, storages, dictionaries and the like cannot.
bool is_encodable(const c10::Type& type);

/// The role of an operator's floating-point numbers and Scalars. kInSignature: their values may
/// determine how a call ends. kScaleOnly: they only scale, so only their kind matters (number.h).
enum class ScalarRole : bool { kInSignature, kScaleOnly };

/// What write_ivalue() writes before each argument. After the tag of a list follows its number of
/// elements.
enum class ArgumentTag : std::uint8_t {
  kNone,
  kTensor,
  kInt,
  kDouble,
  kBool,
  kComplex,
  kString,
  kDevice,
  kIntList,
  kDoubleList,
  kBoolList,
  kTensorList,
  kOptionalTensorList,
};

/// Writes one argument. Tensors in the list type that indexing takes may be on the CPU: they are
/// copied to the device first. False: this value cannot travel (for example, a symbolic integer).
bool write_ivalue(ArgumentWriter& writer, const c10::IValue& value, const c10::Type& type,
                  Access access, ScalarRole role);

/// Reads what write_ivalue() has written; a device becomes the CPU.
c10::IValue read_ivalue(ArgumentReader& reader);

/// Calls `f` for each tensor in an argument, undefined ones too.
template <class F>
void for_each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) for_each_tensor(element, f);
  } else if (value.isGenericDict()) {  // of a custom operator
    for (const auto& entry : value.toGenericDict()) for_each_tensor(entry.value(), f);
  }
}

/// Replaces each tensor in an argument or result by what `f` returns for it.
template <class F>
void map_tensors(c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    auto list = value.toTensorList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) list.set(i, f(list.get(i)));
    value = list;
  } else if (value.isOptionalTensorList()) {
    auto list = value.toOptionalTensorList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (const std::optional<at::Tensor> tensor = list.get(i)) list.set(i, f(*tensor));
    }
    value = list;
  } else if (value.isGenericDict()) {  // of a custom operator, as are lists of lists
    auto dict = value.toGenericDict().copy();
    for (const auto& entry : dict) {
      auto element = entry.value();
      map_tensors(element, f);
      entry.setValue(element);
    }
    value = dict;
  } else if (value.isList() && holds_tensors(*value.type())) {
    auto list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      auto element = list.get(i);
      map_tensors(element, f);
      list.set(i, element);
    }
    value = list;
  }
}

}  // namespace openreg::ops
