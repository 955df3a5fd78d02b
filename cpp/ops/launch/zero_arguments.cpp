#include "ops/launch/zero_arguments.h"

#include <optional>
#include <vector>

#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

namespace {

bool is_empty(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() == 0;
}

bool is_zero_number(const c10::IValue& value) {
  return (value.isBool() && !value.toBool()) || (value.isInt() && value.toInt() == 0) ||
         (value.isDouble() && value.toDouble() == 0) ||
         (value.isComplexDouble() && value.toComplexDouble() == 0.0);
}

/// Of the next argument, which has this type. None: the walk ends here.
std::optional<bool> is_zero_typed(ArgumentReader& reader, const c10::Type& type) {
  const auto* const optional = type.castRaw<c10::OptionalType>();
  const auto& held = optional ? *optional->getElementType() : type;
  if (held.kind() == c10::TypeKind::TensorType) return is_empty(reader.tensor());
  if (held.kind() == c10::TypeKind::NumberType) {
    if (optional && !reader.value<bool>()) return false;
    return is_zero_number(Argument<at::Scalar>::read(reader));
  }
  if (optional) return std::nullopt;
  switch (held.kind()) {
    case c10::TypeKind::BoolType:
      return !reader.value<bool>();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return reader.value<std::int64_t>() == 0;
    case c10::TypeKind::FloatType:
      return reader.value<double>() == 0;
    case c10::TypeKind::ListType: {
      if (!holds_tensors(held)) return std::nullopt;
      bool found = false;
      for (auto left = reader.count(); left > 0; --left) found |= is_empty(reader.tensor());
      return found;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

ZeroArguments::ZeroArguments(const c10::FunctionSchema& schema, std::span<const std::byte> command,
                             ValueFormat format) {
  ArgumentReader reader(command);
  std::vector<c10::IValue> values;
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size() && !arguments[i].is_out(); ++i) {
    if (format == ValueFormat::kTagged) {
      values.push_back(read_ivalue(reader));
      continue;
    }
    const auto zero = is_zero_typed(reader, *arguments[i].type());
    if (!zero) return;
    if (*zero) arguments_ |= bit(i);
  }
  if (format == ValueFormat::kTagged) *this = ZeroArguments(values);
}

ZeroArguments::ZeroArguments(c10::ArrayRef<c10::IValue> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    bool zero = is_zero_number(value);
    for_each_tensor(value, [&](const at::Tensor& tensor) { zero |= is_empty(tensor); });
    if (zero) arguments_ |= bit(i);
    if (!value.isBoolList()) continue;
    const auto flags = value.toBoolList();
    for (std::size_t k = 0; k < flags.size(); ++k) {
      if (!flags.get(k)) in_list_ |= bit(k);
    }
  }
}

}  // namespace openreg::ops
