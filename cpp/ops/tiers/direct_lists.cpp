#include "ops/tiers/direct_lists.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

#include "ops/tiers/command_values.h"
#include "ops/wire/ivalue_arguments.h"
#include "runtime/processor.h"

namespace openreg::ops {

namespace {

constexpr std::size_t kSmall =
    4096;  // bytes of a tensor on average; ATen is as fast for larger ones
constexpr std::uint8_t kBits = kConj | kNeg;

/// A Scalar that is not complex.
struct RealNumber {
  ArgumentTag tag;
  std::uint64_t bits;

  template <class T>
  T as() const {
    if (tag == ArgumentTag::kInt) return static_cast<T>(std::bit_cast<std::int64_t>(bits));
    return static_cast<T>(std::bit_cast<double>(bits));
  }
};

/// What follows a tag.
std::optional<RealNumber> read_number(ArgumentTag tag, Values& values) {
  if ((tag != ArgumentTag::kInt && tag != ArgumentTag::kDouble) || values.left() == 0)
    return std::nullopt;
  return RealNumber{tag, values.next<std::uint64_t>()};
}

struct TensorList {
  std::uint64_t count;
  Values tensors;  // begins at the first
};

std::optional<TensorList> read_list(Values& values) {
  if (values.left() == 0) return std::nullopt;
  const auto count = values.next<std::uint64_t>();
  if (count > values.left()) return std::nullopt;
  const TensorList list{count, values};
  values.skip(count);
  return list;
}

/// The second operand: one of them.
struct Operand {
  std::optional<RealNumber> number;
  const TensorRecord* element = nullptr;
  std::optional<TensorList> list;
};

/// Nothing: it is none of these, or what is added is scaled.
std::optional<Operand> read_operand(Values& values) {
  if (values.left() < 2) return std::nullopt;
  Operand operand;
  const auto tag = values.next<ArgumentTag>();
  if (tag == ArgumentTag::kTensor) {
    operand.element = values.tensor();
    if (operand.element == nullptr) return std::nullopt;
  } else if (tag == ArgumentTag::kTensorList) {
    operand.list = read_list(values);
    if (!operand.list) return std::nullopt;
  } else {
    operand.number = read_number(tag, values);
    if (!operand.number) return std::nullopt;
  }
  if (values.left() > 1) {
    const auto alpha = read_number(values.next<ArgumentTag>(), values);
    if (!alpha || alpha->as<double>() != 1) return std::nullopt;
  }
  return operand;
}

bool are_alike(const CommandView& command, const TensorRecord& one, const TensorRecord& other) {
  const auto dim = command.shape(one).dim;
  const auto* const sizes = command.sizes(one);
  return command.shape(other).dim == dim && std::equal(sizes, sizes + dim, command.sizes(other)) &&
         is_contiguous(command, other);
}

/// Of tensors with as many elements.
bool overlap_in_part(const CommandView& command, const TensorRecord& one,
                     const TensorRecord& other) {
  const auto between = std::abs(one.storage_offset - other.storage_offset);
  return one.storage == other.storage && between != 0 &&
         between < static_cast<std::int64_t>(command.numel(one));
}

/// Whether all tensors of the list, and those of the operand, are such as compute() takes.
bool can_compute(const CommandView& command, const TensorList& list, const Operand& operand,
                 std::uint8_t dtype) {
  if (operand.list && operand.list->count != list.count) return false;
  if (operand.element != nullptr) {
    const auto& shape = command.shape(*operand.element);
    if (shape.dtype != dtype || (shape.flags & kBits) || shape.dim != 0) return false;
  }
  std::size_t elements = 0;
  Values tensors = list.tensors;
  std::optional<Values> others;
  if (operand.list) others = operand.list->tensors;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    const auto* const tensor = tensors.tensor();
    if (tensor == nullptr) return false;
    const auto& shape = command.shape(*tensor);
    if (shape.dtype != dtype || (shape.flags & kBits) || !(shape.flags & kWritten) ||
        !is_contiguous(command, *tensor))
      return false;
    if (operand.element != nullptr && operand.element->storage == tensor->storage) return false;
    if (others) {
      const auto* const other = others->tensor();
      if (other == nullptr) return false;
      const auto& others_shape = command.shape(*other);
      if (others_shape.dtype != dtype || (others_shape.flags & kBits) ||
          !are_alike(command, *tensor, *other))
        return false;
      if (overlap_in_part(command, *tensor, *other)) return false;  // which ATen refuses
    }
    elements += command.numel(*tensor);
  }
  return elements * sizeof(float) <= list.count * kSmall;
}

template <class T, class Compute>
void compute(const CommandView& command, const TensorList& list, const Operand& operand) {
  constexpr Compute kCompute;
  const auto elements = [&command](const TensorRecord& tensor) {
    return reinterpret_cast<T*>(elements_of(command, tensor));
  };
  Values tensors = list.tensors;
  if (operand.list) {
    Values others = operand.list->tensors;
    for (std::uint64_t i = 0; i < list.count; ++i) {
      const auto& tensor = *tensors.tensor();
      auto* const to = elements(tensor);
      const auto* const with = elements(*others.tensor());
      const auto count = command.numel(tensor);
      for (std::size_t k = 0; k < count; ++k) to[k] = kCompute(to[k], with[k]);
    }
    return;
  }
  const T number = operand.number ? operand.number->as<T>() : *elements(*operand.element);
  for (std::uint64_t i = 0; i < list.count; ++i) {
    const auto& tensor = *tensors.tensor();
    auto* const to = elements(tensor);
    const auto count = command.numel(tensor);
    for (std::size_t k = 0; k < count; ++k) to[k] = kCompute(to[k], number);
  }
}

/// Each tensor of the first argument, a list, becomes Compute(tensor, operand).
template <class Compute>
bool compute_in_place(const CommandView& command) {
  Values values(command);
  if (values.left() == 0 || values.next<ArgumentTag>() != ArgumentTag::kTensorList) return false;
  const auto list = read_list(values);
  if (!list || list->count == 0) return false;
  const auto operand = read_operand(values);
  const auto* const first = Values(list->tensors).tensor();
  if (!operand || first == nullptr) return false;
  const auto& shape = command.shape(*first);
  if ((shape.type() != c10::kFloat && shape.type() != c10::kDouble) ||
      !can_compute(command, *list, *operand, shape.dtype))
    return false;
  set_flush_denormals(command.header().flush_denormals);
  if (shape.type() == c10::kFloat) {
    compute<float, Compute>(command, *list, *operand);
  } else {
    compute<double, Compute>(command, *list, *operand);
  }
  return true;
}

}  // namespace

BodyTraits::Direct direct_computation_of_lists(const char* op) {
  constexpr std::string_view kPrefix = "aten::_foreach_";
  std::string_view name(op);
  if (name.rfind(kPrefix, 0) != 0) return nullptr;
  name.remove_prefix(kPrefix.size());
  const auto dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  constexpr std::array<std::string_view, 3> kOperands{"Scalar", "List", "Tensor"};
  if (std::find(kOperands.begin(), kOperands.end(), name.substr(dot + 1)) == kOperands.end())
    return nullptr;
  const auto verb = name.substr(0, dot);
  if (verb == "add_") return &compute_in_place<std::plus<>>;
  if (verb == "sub_") return &compute_in_place<std::minus<>>;
  if (verb == "mul_") return &compute_in_place<std::multiplies<>>;
  if (verb == "div_") return &compute_in_place<std::divides<>>;
  return nullptr;
}

}  // namespace openreg::ops
