#include "ops/wire/ivalue_arguments.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

namespace {

using Indices = c10::List<std::optional<at::Tensor>>;
using Tag = ArgumentTag;

bool is_one_of(const c10::Type& type, std::initializer_list<c10::TypeKind> kinds) {
  return std::ranges::find(kinds, type.kind()) != kinds.end();
}

bool is_number(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>())
    return is_number(*optional->getElementType());
  return is_one_of(type, {c10::TypeKind::NumberType, c10::TypeKind::FloatType});
}

template <class List>
void write_list(ArgumentWriter& writer, Tag tag, const List& list) {
  writer.value(tag);
  writer.encode<std::uint64_t>(list.size());
  writer.add_signature_word(list.size());
}

}  // namespace

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  const auto contained = type.containedTypes();
  return std::any_of(contained.begin(), contained.end(),
                     [](const auto& each) { return holds_tensors(*each); });
}

bool is_written(const c10::AliasInfo* alias) {
  if (alias == nullptr) return false;
  const auto& contained = alias->containedTypes();
  return alias->isWrite() || std::any_of(contained.begin(), contained.end(),
                                         [](const auto& each) { return is_written(&each); });
}

bool is_encodable(const c10::Type& type) {
  using enum c10::TypeKind;
  if (const auto* const list = type.castRaw<c10::ListType>()) {
    const auto& element = *list->getElementType();
    if (const auto* const optional = element.castRaw<c10::OptionalType>())
      return optional->getElementType()->kind() == TensorType;
    return is_one_of(element, {TensorType, IntType, SymIntType, FloatType, BoolType});
  }
  if (const auto* const optional = type.castRaw<c10::OptionalType>())
    return is_encodable(*optional->getElementType());
  return is_one_of(type, {TensorType, IntType, SymIntType, FloatType, BoolType, NumberType,
                          StringType, DeviceObjType, ScalarTypeType, LayoutType, MemoryFormatType});
}

bool write_ivalue(ArgumentWriter& writer, const c10::IValue& value, const c10::Type& type,
                  Access access, ScalarRole role) {
  const bool scales = role == ScalarRole::kScaleOnly && is_number(type);
  const auto write_number = [&](Tag tag, const auto& number) {
    writer.value(tag);
    writer.encode(number);
    scales ? writer.add_kind_to_signature(number) : writer.add_to_signature(number);
  };
  if (value.isNone()) {
    writer.value(Tag::kNone);
  } else if (value.isTensor()) {
    writer.value(Tag::kTensor);
    writer.tensor(value.toTensor(), access);
  } else if (value.isInt()) {
    write_number(Tag::kInt, value.toInt());
  } else if (value.isBool()) {
    writer.value(Tag::kBool);
    writer.value(value.toBool());
  } else if (value.isDouble()) {
    write_number(Tag::kDouble, value.toDouble());
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    writer.value(Tag::kComplex);
    writer.encode(number);
    writer.add_to_signature(number.real());
    writer.add_to_signature(number.imag());
  } else if (value.isString()) {
    const std::string_view text = value.toStringRef();
    writer.value(Tag::kString);
    writer.array(text.data(), text.size());
  } else if (value.isDevice()) {
    writer.value(Tag::kDevice);
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    write_list(writer, Tag::kIntList, list);
    for (const auto element : list) writer.value(element);
  } else if (value.isDoubleList()) {
    const auto list = value.toDoubleVector();
    write_list(writer, Tag::kDoubleList, list);
    for (const auto element : list) writer.value(element);
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    write_list(writer, Tag::kBoolList, list);
    for (std::size_t i = 0; i < list.size(); ++i) writer.value<bool>(list.get(i));
  } else if (value.isTensorList()) {
    const auto list = value.toListRef();
    write_list(writer, Tag::kTensorList, list);
    for (const auto& element : list) writer.tensor(element.toTensor(), access);
  } else if (value.isOptionalTensorList()) {
    writer.value(Tag::kOptionalTensorList);
    Argument<Indices>::write(writer, value.toOptionalTensorList());
  } else {
    return false;
  }
  return true;
}

c10::IValue read_ivalue(ArgumentReader& reader) {
  const auto tag = reader.value<Tag>();
  const auto read_list = [&reader](auto list, auto read) {
    for (auto left = reader.count(); left > 0; --left) list.push_back(read());
    return c10::IValue(std::move(list));
  };
  switch (tag) {
    case Tag::kNone:
      return {};
    case Tag::kTensor:
      return reader.tensor();
    case Tag::kInt:
      return reader.value<std::int64_t>();
    case Tag::kDouble:
      return reader.value<double>();
    case Tag::kBool:
      return reader.value<bool>();
    case Tag::kComplex:
      return reader.value<c10::complex<double>>();
    case Tag::kString: {
      const auto text = reader.array<char>();
      return std::string(text.data(), text.size());
    }
    case Tag::kDevice:
      return c10::Device(c10::kCPU);
    case Tag::kIntList:
      return read_list(c10::List<std::int64_t>(), [&] { return reader.value<std::int64_t>(); });
    case Tag::kDoubleList:
      return read_list(c10::List<double>(), [&] { return reader.value<double>(); });
    case Tag::kBoolList:
      return read_list(c10::List<bool>(), [&] { return reader.value<bool>(); });
    case Tag::kTensorList:
      return read_list(c10::List<at::Tensor>(), [&] { return reader.tensor(); });
    case Tag::kOptionalTensorList:
      return Argument<Indices>::read(reader);
  }
  TORCH_INTERNAL_ASSERT(false, "not an argument's tag");
}

}  // namespace openreg::ops
