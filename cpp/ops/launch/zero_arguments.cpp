#include "ops/launch/zero_arguments.h"

#include <bit>
#include <cstring>
#include <optional>

#include "ops/wire/command_layout.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

namespace {

using Tag = ArgumentTag;

/// Walks over the values of a command: Note [Arguments on the wire].
class Values {
 public:
  explicit Values(const CommandView& view)
      : view_(view), next_(view.values()), end_(view.payload()) {}

  bool at_end() const { return next_ >= end_; }
  template <class T>
  T take() {
    T value{};
    std::memcpy(&value, next_, sizeof(T));
    next_ += (sizeof(T) + kWord - 1) / kWord * kWord;
    return value;
  }
  void skip(std::size_t bytes) { next_ += (bytes + kWord - 1) / kWord * kWord; }

  /// Whether this reference is to a tensor without elements.
  bool is_empty_tensor() {
    const auto number = take<std::int32_t>();
    return number != kUndefined &&
           view_.numel(view_.tensors()[static_cast<std::size_t>(number)]) == 0;
  }
  bool has_empty_tensor() {
    bool found = false;
    for (auto left = take<std::uint64_t>(); left > 0; --left) found |= is_empty_tensor();
    return found;
  }
  bool is_zero_complex() {
    const auto real = take<double>();
    return take<double>() == 0 && real == 0;
  }

 private:
  static constexpr std::size_t kWord = sizeof(std::uint64_t);

  const CommandView& view_;
  const std::byte* next_;
  const std::byte* end_;
};

bool is_zero_scalar(Values& values) {
  const auto type = values.take<at::ScalarType>();
  if (at::isComplexType(type)) return values.is_zero_complex();
  return at::isFloatingType(type) ? values.take<double>() == 0 : values.take<std::int64_t>() == 0;
}

/// Of an argument that has a C++ type. None: the walk ends here.
std::optional<bool> is_zero_typed(Values& values, const c10::Type& type) {
  const auto* const optional = type.castRaw<c10::OptionalType>();
  const auto& held = optional ? *optional->getElementType() : type;
  switch (held.kind()) {
    case c10::TypeKind::TensorType:
      return values.is_empty_tensor();
    case c10::TypeKind::NumberType:
      if (optional && !values.take<bool>()) return false;
      return is_zero_scalar(values);
    case c10::TypeKind::BoolType:
      if (optional) return std::nullopt;
      return !values.take<bool>();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      if (optional) return std::nullopt;
      return values.take<std::int64_t>() == 0;
    case c10::TypeKind::FloatType:
      if (optional) return std::nullopt;
      return values.take<double>() == 0;
    case c10::TypeKind::ListType:
      if (optional || !holds_tensors(held)) return std::nullopt;
      return values.has_empty_tensor();
    default:
      return std::nullopt;
  }
}

/// Of an argument behind a tag. `note_flag`: for each element of a list of flags.
template <class NoteFlag>
bool is_zero_tagged(Values& values, NoteFlag note_flag) {
  switch (values.take<Tag>()) {
    case Tag::kNone:
    case Tag::kDevice:
      return false;
    case Tag::kTensor:
      return values.is_empty_tensor();
    case Tag::kInt:
      return values.take<std::int64_t>() == 0;
    case Tag::kDouble:
      return values.take<double>() == 0;
    case Tag::kBool:
      return !values.take<bool>();
    case Tag::kComplex:
      return values.is_zero_complex();
    case Tag::kString:
      values.skip(values.take<std::uint64_t>());
      return false;
    case Tag::kIntList:
    case Tag::kDoubleList:
      values.skip(values.take<std::uint64_t>() * sizeof(std::uint64_t));
      return false;
    case Tag::kBoolList: {
      const auto count = values.take<std::uint64_t>();
      for (std::size_t i = 0; i < count; ++i) note_flag(i, values.take<bool>());
      return false;
    }
    case Tag::kTensorList:
    case Tag::kOptionalTensorList:
      return values.has_empty_tensor();
  }
  return false;
}

}  // namespace

ZeroArguments::ZeroArguments(const c10::FunctionSchema& schema, std::span<const std::byte> command,
                             ValueFormat format) {
  const CommandView view(command);
  Values values(view);
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size() && !values.at_end(); ++i) {
    if (arguments[i].is_out()) break;
    std::optional<bool> zero;
    if (format == ValueFormat::kTyped) {
      zero = is_zero_typed(values, *arguments[i].type());
      if (!zero) return;
    } else {
      zero = is_zero_tagged(values, [this](std::size_t element, bool flag) {
        if (!flag) in_list_ |= bit(element);
      });
    }
    if (*zero) arguments_ |= bit(i);
  }
}

ZeroArguments::ZeroArguments(c10::ArrayRef<c10::IValue> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    bool zero = (value.isBool() && !value.toBool()) || (value.isInt() && value.toInt() == 0) ||
                (value.isDouble() && value.toDouble() == 0);
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      zero |= tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() == 0;
    });
    if (zero) arguments_ |= bit(i);
    if (!value.isBoolList()) continue;
    const auto flags = value.toBoolList();
    for (std::size_t k = 0; k < flags.size(); ++k) {
      if (!flags.get(k)) in_list_ |= bit(k);
    }
  }
}

}  // namespace openreg::ops
