#include "ops/tiers/small_lists.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/processor.h"
#include "ops/tiers/command_values.h"

namespace openreg::ops {

namespace {

constexpr std::size_t kSmall = 2048;             // bytes of a tensor on average
constexpr std::size_t kMostBatched = 64 * 1024;  // bytes, of each list: they stay in the cache
constexpr std::uint64_t kFewest = 6;             // tensors that are worth joining
constexpr std::uint8_t kBits = kConj | kNeg;

/// An argument that is a list of tensors. The first is the one that is written.
struct List {
  std::size_t argument;
  std::uint64_t count;
  Values tensors;  // begins at the next that is not computed yet
};

struct Call {
  torch::jit::Stack arguments;  // lists are left out
  std::vector<List> lists;
  const TensorRecord* number = nullptr;  // a tensor that is a number
};

bool is_float(c10::ScalarType type) { return type == c10::kFloat || type == c10::kDouble; }

/// Nothing: an argument is none of those that elementwise operators on lists take.
std::optional<Call> read_call(const BoxedOperator& op, const CommandView& command) {
  Call call;
  Values values(command);
  for (std::size_t i = 0; i < op.roles().size(); ++i) {
    switch (values.next<ArgumentTag>()) {
      case ArgumentTag::kInt:
        call.arguments.emplace_back(values.next<std::int64_t>());
        break;
      case ArgumentTag::kDouble:
        call.arguments.emplace_back(values.next<double>());
        break;
      case ArgumentTag::kTensor: {
        const auto* const tensor = values.tensor();
        if (tensor == nullptr || call.number != nullptr) return std::nullopt;
        const auto& shape = command.shape(*tensor);
        if (shape.dim != 0 || !is_float(shape.type()) || (shape.flags & kBits)) return std::nullopt;
        call.number = tensor;
        const auto* const element = elements_of(command, *tensor);
        call.arguments.emplace_back(
            shape.type() == c10::kFloat
                ? at::scalar_tensor(*reinterpret_cast<const float*>(element), at::kFloat)
                : at::scalar_tensor(*reinterpret_cast<const double*>(element), at::kDouble));
        break;
      }
      case ArgumentTag::kTensorList: {
        const auto count = values.next<std::uint64_t>();
        call.lists.push_back({i, count, values});
        values.skip(count);
        call.arguments.emplace_back();
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return call;
}

/// Which part of a storage the call uses.
struct Use {
  bool read = false;
  std::int64_t written = 0;  // elements before this one
};

/// Whether the tensors can be computed in any order: they are of one dtype, those of different
/// lists are alike, and none is written that another of the call lies in.
bool are_independent(const CommandView& command, const Call& call, c10::ScalarType dtype) {
  std::vector<Use> uses(command.header().storages);
  if (call.number != nullptr) {
    if (command.shape(*call.number).type() != dtype) return false;
    uses[call.number->storage].read = true;
  }
  auto lists = call.lists;
  for (std::uint64_t i = 0; i < lists[0].count; ++i) {
    const auto* const first = lists[0].tensors.tensor();
    if (first == nullptr) return false;
    const auto is_alike = [&command, first, dtype](const TensorRecord& tensor) {
      const auto& shape = command.shape(tensor);
      const auto* const sizes = command.sizes(tensor);
      return shape.type() == dtype && !(shape.flags & kBits) &&
             shape.dim == command.shape(*first).dim &&
             std::equal(sizes, sizes + shape.dim, command.sizes(*first)) &&
             is_contiguous(command, tensor);
    };
    auto& use = uses[first->storage];
    if (!is_alike(*first) || use.read || first->storage_offset < use.written) return false;
    use.written = first->storage_offset + static_cast<std::int64_t>(command.numel(*first));
    for (std::size_t k = 1; k < lists.size(); ++k) {
      const auto* const other = lists[k].tensors.tensor();
      if (other == nullptr || !is_alike(*other)) return false;
      if (other->storage == first->storage && other->storage_offset == first->storage_offset)
        continue;
      if (uses[other->storage].written != 0) return false;
      uses[other->storage].read = true;
    }
  }
  return true;
}

/// The dtype of all tensors. Nothing: they are not small, or not independent.
std::optional<c10::ScalarType> common_dtype(const CommandView& command, const Call& call) {
  if (call.lists.empty()) return std::nullopt;
  const auto count = call.lists[0].count;
  const auto same = [count](const List& list) { return list.count == count; };
  if (count == 0 || !std::ranges::all_of(call.lists, same)) return std::nullopt;
  const auto* const first = Values(call.lists[0].tensors).tensor();
  if (first == nullptr || !is_float(command.shape(*first).type())) return std::nullopt;
  auto tensors = call.lists[0].tensors;
  std::size_t elements = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto* const tensor = tensors.tensor();
    if (tensor != nullptr) elements += command.numel(*tensor);
  }
  const auto dtype = command.shape(*first).type();
  if (elements * c10::elementSize(dtype) > count * kSmall) return std::nullopt;
  return are_independent(command, call, dtype) ? std::optional(dtype) : std::nullopt;
}

/// Each tensor of the first list becomes Compute(tensor, second operand).
template <class T, class Compute>
void compute_each(const CommandView& command, const Call& call) {
  constexpr Compute kCompute;
  const auto elements = [&command](const TensorRecord& tensor) {
    return reinterpret_cast<T*>(elements_of(command, tensor));
  };
  auto tensors = call.lists[0].tensors;
  if (call.lists.size() > 1) {
    auto others = call.lists[1].tensors;
    for (std::uint64_t i = 0; i < call.lists[0].count; ++i) {
      const auto& tensor = *tensors.tensor();
      auto* const to = elements(tensor);
      const auto* const with = elements(*others.tensor());
      const auto count = command.numel(tensor);
      for (std::size_t k = 0; k < count; ++k) to[k] = kCompute(to[k], with[k]);
    }
    return;
  }
  const auto& operand = call.arguments[1];
  const T number = operand.isTensor() ? *operand.toTensor().const_data_ptr<T>()
                   : operand.isInt()  ? static_cast<T>(operand.toInt())
                                      : static_cast<T>(operand.toDouble());
  for (std::uint64_t i = 0; i < call.lists[0].count; ++i) {
    const auto& tensor = *tensors.tensor();
    auto* const to = elements(tensor);
    const auto count = command.numel(tensor);
    for (std::size_t k = 0; k < count; ++k) to[k] = kCompute(to[k], number);
  }
}

/// Whether the second operand is multiplied by a number before it is added.
bool is_scaled(const Call& call) {
  constexpr std::size_t kAlpha = 2;
  return call.arguments.size() > kAlpha && call.arguments[kAlpha].toScalar().toDouble() != 1;
}

/// False: not such an operator.
template <class T>
bool compute_by_loop(ListComputation computation, const CommandView& command, const Call& call) {
  const auto each = [&]<class F>(F) {
    compute_each<T, F>(command, call);
    return true;
  };
  switch (computation) {
    case ListComputation::kAdd:
      return !is_scaled(call) && each(std::plus<>());
    case ListComputation::kSub:
      return !is_scaled(call) && each(std::minus<>());
    case ListComputation::kMul:
      return each(std::multiplies<>());
    case ListComputation::kDiv:
      return each(std::divides<>());
    default:
      return false;
  }
}

void compute_batched(const BoxedOperator& op, const CommandView& command, Call& call,
                     c10::ScalarType dtype) {
  const auto count = call.lists[0].count;
  const auto itemsize = c10::elementSize(dtype);
  for (std::uint64_t next = 0; next < count;) {
    const auto begin = call.lists[0].tensors;
    const auto first = next;
    std::size_t bytes = 0;
    for (auto tensors = begin; next < count && bytes < kMostBatched; ++next)
      bytes += command.numel(*tensors.tensor()) * itemsize;
    if (bytes == 0) return;  // none of the others has elements
    auto stack = call.arguments;
    at::Tensor result;
    for (auto& list : call.lists) {
      const auto batched =
          at::empty({static_cast<std::int64_t>(bytes / itemsize)}, at::TensorOptions(dtype));
      auto* to = static_cast<std::byte*>(batched.mutable_data_ptr());
      for (auto i = first; i < next; ++i) {
        const auto& tensor = *list.tensors.tensor();
        const auto size = command.numel(tensor) * itemsize;
        std::memcpy(to, elements_of(command, tensor), size);
        to += size;
      }
      stack[list.argument] = c10::List<at::Tensor>({batched});
      if (!result.defined()) result = batched;
    }
    op.run_cpu_kernel(stack);
    const auto* from = static_cast<const std::byte*>(result.const_data_ptr());
    auto tensors = begin;
    for (auto i = first; i < next; ++i) {
      const auto& tensor = *tensors.tensor();
      const auto size = command.numel(tensor) * itemsize;
      std::memcpy(elements_of(command, tensor), from, size);
      from += size;
    }
  }
}

}  // namespace

ListComputation list_computation(const char* op) {
  constexpr std::string_view kPrefix = "aten::_foreach_";
  constexpr std::array<std::string_view, 14> kExact{
      "abs_", "addcdiv_",    "addcmul_", "ceil_",  "floor_", "frac_",  "lerp_",
      "neg_", "reciprocal_", "round_",   "rsqrt_", "sqrt_",  "trunc_", "zero_"};
  std::string_view name(op);
  if (name.rfind(kPrefix, 0) != 0) return ListComputation::kNone;
  name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.find('.'));
  if (name == "add_") return ListComputation::kAdd;
  if (name == "sub_") return ListComputation::kSub;
  if (name == "mul_") return ListComputation::kMul;
  if (name == "div_") return ListComputation::kDiv;
  return std::ranges::find(kExact, name) != kExact.end() ? ListComputation::kBatched
                                                         : ListComputation::kNone;
}

bool compute_small_lists(const BoxedOperator& op, ListComputation computation,
                         const CommandView& command) {
  set_flush_denormals(command.header().flush_denormals);
  auto call = read_call(op, command);
  const auto dtype = call ? common_dtype(command, *call) : std::nullopt;
  if (!dtype) return false;
  if (*dtype == c10::kFloat ? compute_by_loop<float>(computation, command, *call)
                            : compute_by_loop<double>(computation, command, *call))
    return true;
  if (call->lists[0].count < kFewest) return false;
  compute_batched(op, command, *call, *dtype);
  return true;
}

}  // namespace openreg::ops
