#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace openreg::ops {

// Note [Operands that are not used]
//
// The race detector compares what commands use, and a command is given more than that: batch
// normalisation writes its running statistics in training only, a gradient of pooling needs only
// the shape of its input, a product whose factor `beta` is 0 does not read what it is added to, and
// which elements indexing uses depends on values. operand_use.cpp lists these operands, each with a
// condition that the host knows at the call. Besides, a command whose results have no elements
// reads nothing.

enum class Use : std::uint8_t { kReadsSome, kReadsNone, kWritesSome, kWritesNone };

/// Asks whether an argument is zero, as ZeroArguments has it; "output_mask[0]" is an element of the
/// list of flags.
using IsZero = c10::function_ref<bool(std::string_view argument)>;

/// One operand of an operator that uses less than all of it.
struct OperandUse {
  enum class When : std::uint8_t { kAlways, kZero, kNotZero };

  std::string_view op;  ///< of aten, without overload; its form in place uses its operands alike
  std::string_view operand;
  Use use;
  std::string_view reason;
  When when = When::kAlways;
  std::string_view condition{};  ///< an argument, or several with spaces between: all of them

  bool holds(IsZero is_zero) const;
};

std::span<const OperandUse> all_operand_uses();
/// The uses by an operator, named with namespace and overload: "aten::add_.Tensor".
std::span<const OperandUse> operand_uses(std::string_view op);

/// What a call does with an operand.
struct Uses {
  bool writes;
  bool reads = true;  // if it does not write
  bool some = false;  // of the elements, which depend on values or on their places
};
/// `writes`: whether the operator may write it. `uses`: the operator's.
Uses uses_of(std::span<const OperandUse> uses, std::string_view operand, bool writes,
             IsZero is_zero);

}  // namespace openreg::ops
