#include "ops/cuda_memory/call.h"

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops::cuda_memory {

namespace {

template <class T>
c10::IValue value_or_none(const std::optional<T>& value) {
  return value ? c10::IValue(*value) : c10::IValue();
}

template <class T>
c10::IValue read_plain(ArgumentReader& reader, bool optional) {
  return optional ? value_or_none(reader.value<std::optional<T>>()) : reader.value<T>();
}

/// Those of typed_arguments.h that can be None say so first.
template <class Read>
c10::IValue read_announced(ArgumentReader& reader, bool optional, Read read) {
  return optional && !reader.value<bool>() ? c10::IValue() : c10::IValue(read());
}

c10::IValue read_tensors(ArgumentReader& reader) {
  c10::List<at::Tensor> tensors;
  for (auto left = reader.count(); left > 0; --left) tensors.push_back(reader.tensor());
  return tensors;
}

/// The next argument, which has this type. None: it cannot be read, nor can those after it.
std::optional<c10::IValue> read_typed(ArgumentReader& reader, const c10::Type& type) {
  const auto* const of = type.castRaw<c10::OptionalType>();
  const bool optional = of != nullptr;
  const auto& held = optional ? *of->getElementType() : type;
  switch (held.kind()) {
    case c10::TypeKind::TensorType:
      return reader.tensor();
    case c10::TypeKind::NumberType:
      return read_announced(reader, optional, [&] { return Argument<at::Scalar>::read(reader); });
    case c10::TypeKind::BoolType:
      return read_plain<bool>(reader, optional);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return read_plain<std::int64_t>(reader, optional);
    case c10::TypeKind::FloatType:
      return read_plain<double>(reader, optional);
    case c10::TypeKind::ScalarTypeType:
      return read_plain<at::ScalarType>(reader, optional);
    case c10::TypeKind::StringType:
      return read_announced(reader, optional, [&] {
        const auto text = reader.array<char>();
        return std::string(text.data(), text.size());
      });
    case c10::TypeKind::ListType: {
      const auto element = held.castRaw<c10::ListType>()->getElementType()->kind();
      if (holds_tensors(held)) return read_tensors(reader);
      if (element != c10::TypeKind::IntType && element != c10::TypeKind::SymIntType)
        return std::nullopt;
      return read_announced(reader, optional, [&] {
        const auto values = reader.array<std::int64_t>();
        return std::vector<std::int64_t>(values.begin(), values.end());
      });
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Call::Call(std::string_view op, const c10::FunctionSchema* schema,
           std::span<const std::byte> command, ValueFormat format)
    : op_(op), schema_(schema), reader_(command) {
  const auto of_command = reader_.tensors();
  tensors_.append(of_command.begin(), of_command.end());
  if (schema == nullptr) return;
  const auto& arguments = schema->arguments();
  arguments_.resize(arguments.size());
  for (std::size_t i = 0; i < arguments.size() && !arguments[i].is_out(); ++i) {
    if (format == ValueFormat::kTagged) {
      arguments_[i] = read_ivalue(reader_);
    } else if (auto value = read_typed(reader_, *arguments[i].real_type())) {
      arguments_[i] = std::move(*value);
    } else {
      return;
    }
  }
  const bool tagged = format == ValueFormat::kTagged;
  for (const auto& result : schema->returns()) {
    if (result.alias_info() != nullptr && tagged) continue;  // one of the arguments
    if (tagged) reader_.value<std::int32_t>();               // the kernel's allocation
    results_.push_back(reader_.tensor());
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (tagged && arguments[i].is_out()) results_.push_back(reader_.tensor());
  }
}

std::string_view Call::base_name() const noexcept {
  auto name = op_;
  if (const auto colons = name.find("::"); colons != std::string_view::npos)
    name.remove_prefix(colons + 2);
  return name.substr(0, name.find('.'));
}

bool Call::has(std::string_view name) const {
  return schema_ != nullptr && schema_->argumentIndexWithName(name).has_value();
}

const c10::IValue& Call::argument(std::string_view name) const {
  const auto index =
      schema_ != nullptr ? schema_->argumentIndexWithName(name) : std::optional<int>();
  TORCH_INTERNAL_ASSERT(index, op_, " has no argument ", name);
  return arguments_[static_cast<std::size_t>(*index)];
}

at::Tensor Call::optional_tensor(std::string_view name) const {
  if (!has(name)) return {};
  const auto& value = argument(name);
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

bool Call::optional_flag(std::string_view name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const auto& value = argument(name);
  return value.isBool() ? value.toBool() : otherwise;
}

}  // namespace openreg::ops::cuda_memory
