#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace openreg::ops {

/// How a command holds its values: as the operator's C++ types, or each behind an ArgumentTag.
enum class ValueFormat : std::uint8_t { kTyped, kTagged };

/// Which arguments of a call are zero, by their numbers in the schema: the number 0, the flag
/// false, a tensor without elements, also in a list. And which elements of its list of flags are
/// false. What cannot be told is not zero.
class ZeroArguments {
 public:
  ZeroArguments() = default;
  /// Reads a command that has the arguments of `schema` in order.
  ZeroArguments(const c10::FunctionSchema& schema, std::span<const std::byte> command,
                ValueFormat format);
  explicit ZeroArguments(c10::ArrayRef<c10::IValue> arguments);

  bool has(std::size_t argument) const noexcept { return arguments_ & bit(argument); }
  bool has_in_list(std::size_t element) const noexcept { return in_list_ & bit(element); }

 private:
  static constexpr std::uint64_t bit(std::size_t i) { return i < 64 ? std::uint64_t{1} << i : 0; }

  std::uint64_t arguments_ = 0;
  std::uint64_t in_list_ = 0;
};

}  // namespace openreg::ops
