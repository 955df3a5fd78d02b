#include "ops/launch/memory_of_command.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "backend/exception.h"
#include "backend/race_detection.h"
#include "ops/launch/operand_use.h"
#include "ops/launch/operator_names.h"
#include "ops/wire/command_layout.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

namespace {

using Schema = c10::FunctionSchema;

std::string text_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

/// Of the operator, or of the form of it with outputs that the caller gives.
const Schema* in_place_variant(std::string_view op) {
  constexpr std::string_view kOut = "_out";
  constexpr std::string_view kTensor = "Tensor_";  // pow.Tensor_Scalar and pow_.Scalar
  const auto name = operator_name(op);
  std::string_view overload = name.overload_name;
  if (overload == "out") overload = {};
  if (overload.ends_with(kOut)) overload.remove_suffix(kOut.size());
  const auto variant = [&] { return find_schema({name.name + "_", std::string(overload)}); };
  if (const auto* const found = variant()) return found;
  if (!overload.starts_with(kTensor)) return nullptr;
  overload.remove_prefix(kTensor.size());
  return variant();
}

bool mutates(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool writes_an_input(const Schema& schema, const memory::MemoryUse& use) {
  const auto& arguments = schema.arguments();
  return use.writes && use.argument >= 0 &&
         static_cast<std::size_t>(use.argument) < arguments.size() &&
         !mutates(arguments[static_cast<std::size_t>(use.argument)]);
}

std::string result_text(std::size_t number) {
  return number == 0 ? "the result" : "result " + std::to_string(number);
}

constexpr int kNoList = -1;

/// "`self`", "`tensors[2]`"
std::string in_backticks(std::string_view name, int element = kNoList) {
  std::string text(1, '`');
  text.append(name);
  if (element != kNoList) text.append("[").append(std::to_string(element)).append("]");
  return text.append("`");
}

/// Kernels whose inputs and outputs are not in the order of the schema.
struct Order {
  std::string_view op;
  std::array<std::string_view, 7> inputs;
  std::array<std::string_view, 2> outputs;
};
constexpr std::array<Order, 2> kOrders{
    {{"aten::batch_norm_gather_stats_with_counts",
      {"mean", "invstd", "counts"},
      {"running_mean", "running_var"}},
     {"aten::_flash_attention_forward",
      {"query", "key", "value", "cum_seq_q", "cum_seq_k", "seqused_k", "block_table"},
      {}}}};

/// In backticks, or "the result". `element`: among those that the schema writes, or does not write.
std::string input_or_output(std::string_view op, const Schema& schema, bool output,
                            std::size_t element) {
  c10::SmallVector<std::string_view, 8> names;
  if (const auto* const order = std::ranges::find(kOrders, op, &Order::op);
      order != kOrders.end()) {
    const auto add = [&](const auto& of_kernel) {
      std::ranges::copy_if(of_kernel, std::back_inserter(names),
                           [](std::string_view name) { return !name.empty(); });
    };
    output ? add(order->outputs) : add(order->inputs);
  } else {
    for (const auto& argument : schema.arguments()) {
      if (holds_tensors(*argument.type()) && mutates(argument) == output)
        names.emplace_back(argument.name());
    }
  }
  if (element < names.size()) return in_backticks(names[element]);
  return output ? result_text(element - names.size()) : "";
}

std::string argument_of(std::string_view op, const Schema* schema, const memory::MemoryUse& use) {
  if (use.argument == ArgumentPlace::kResult) return result_text(use.element);
  if (use.argument == ArgumentPlace::kOut)
    return in_backticks("out", use.element == 0 ? kNoList : use.element);
  if (!schema) return "";
  const bool is_output = use.argument == ArgumentPlace::kOutput;
  if (is_output || use.argument == ArgumentPlace::kInput)
    return input_or_output(op, *schema, is_output, use.element);
  // A kernel that does not say which arguments its tensors are takes those of the schema in order.
  auto left = use.element;
  std::int16_t number = 0;
  for (const auto& argument : schema->arguments()) {
    const auto this_number = number++;
    if (!holds_tensors(*argument.type())) continue;
    const bool found =
        use.argument == ArgumentPlace::kUnknown ? left-- == 0 : use.argument == this_number;
    if (!found) continue;
    const bool is_list = argument.type()->str().find('[') != std::string::npos;
    return in_backticks(argument.name(), is_list ? use.element : kNoList);
  }
  return use.argument == ArgumentPlace::kUnknown && use.writes ? "the result" : "";
}

/// What an operator does with its operands, if it does not use all of them wholly.
struct Operands {
  std::span<const OperandUse> listed;
  const Schema* schema = nullptr;  // of those that are listed
  bool is_fused_optimizer = false;
};

Operands operands_of(const char* op) {
  const auto listed = operand_uses(op);
  return {.listed = listed,
          .schema = listed.empty() ? nullptr : find_schema(operator_name(op)),
          .is_fused_optimizer = std::string_view(op).starts_with("aten::_fused_")};
}

// The schema says that they write their gradients, which is true only if these are to be unscaled.
void gradients_are_read(const char* op, backend::MemoryOfCommand& memory) {
  const auto* const schema = find_schema(operator_name(op));
  if (!schema) return;
  const auto gradients = schema->argumentIndexWithName("grads");
  const auto scale = schema->argumentIndexWithName("grad_scale");
  if (std::ranges::any_of(memory, [&](const auto& use) { return use.argument == scale; })) return;
  for (auto& use : memory) {
    if (use.argument == gradients) use.writes = false;
  }
}

/// "`tensors[2]`" -> "tensors"
std::string_view without_backticks(std::string_view text) {
  if (text.starts_with('`')) text = text.substr(1, text.size() - 2);
  return text.substr(0, text.find('['));
}

/// The operands of one call that are not used wholly.
class OperandUses {
 public:
  /// `make_zeros`: makes the call's ZeroArguments.
  template <class MakeZeros>
  OperandUses(const char* op, const Operands& operands, MakeZeros make_zeros)
      : op_(op), listed_(operands.listed), schema_(operands.schema) {
    if (schema_) zeros_ = make_zeros(*schema_);
  }

  /// What the operator really does with an operand. False: nothing.
  bool apply(memory::MemoryUse& use) const {
    if (!schema_) return true;
    const auto argument = argument_of(op_, schema_, use);
    const auto found = uses_of(listed_, without_backticks(argument), use.writes,
                               [this](std::string_view name) { return is_zero(name); });
    use.writes = found.writes;
    use.some_elements = found.some;
    return found.writes || found.reads;
  }

 private:
  bool is_zero(std::string_view argument) const {
    const auto bracket = argument.find('[');
    if (bracket != std::string_view::npos)
      return zeros_.has_in_list(static_cast<std::size_t>(argument[bracket + 1] - '0'));
    const auto number = schema_->argumentIndexWithName(argument);
    return number && zeros_.has(static_cast<std::size_t>(*number));
  }

  const char* op_;
  std::span<const OperandUse> listed_;
  const Schema* schema_;
  ZeroArguments zeros_;
};

}  // namespace

backend::MemoryOfCommand memory_of_command(const char* op, std::span<const std::byte> command,
                                           const ArgumentWriter& arguments, ValueFormat format) {
  const CommandView view(command);
  // Other kernels may have values of their own.
  const bool as_schema = arguments.tensor_count() != 0 && arguments.place_of(0).argument >= 0;
  thread_local ByOperator<Operands> by_operator;
  const auto& known = by_operator.get(op, operands_of);
  const OperandUses operands(op, known, [&](const Schema& schema) {
    return as_schema ? ZeroArguments(schema, command, format) : ZeroArguments();
  });
  backend::MemoryOfCommand memory;
  std::uint16_t number = 0;
  bool may_write = false;
  bool writes_elements = false;
  for (const auto& tensor : view.tensors()) {
    const auto& shape = view.shape(tensor);
    const auto this_number = number++;
    const auto place = arguments.place_of(this_number);
    if (shape.flags & kPayload) continue;
    const auto& storage = view.storage(tensor);
    const auto* const begin = reinterpret_cast<const std::byte*>(storage.pointer);
    const auto itemsize = c10::elementSize(shape.type());
    const std::span sizes(view.sizes(tensor), shape.dim);
    const std::span strides(view.strides(tensor), shape.dim);
    const bool writes = (shape.flags & kWritten) != 0;
    auto& use = memory.emplace_back(memory::MemoryUse{
        .storage = begin,
        .storage_bytes = storage.nbytes,
        .footprint = {begin + static_cast<std::size_t>(tensor.storage_offset) * itemsize, itemsize,
                      sizes, strides},
        .writes = writes,
        .pinned = (shape.flags & kPinned) != 0,
        .number = this_number,
        .argument = place.argument,
        .element = place.element,
        .in_place = arguments.is_in_place(),
        .itemsize = static_cast<std::uint16_t>(itemsize),
        .dtype = backend::dtype_name(shape.type()),
        .sizes = sizes,
        .strides = strides});
    may_write |= writes;
    if (operands.apply(use)) {
      writes_elements |= use.writes && !use.footprint.empty();
    } else {
      memory.pop_back();
    }
  }
  if (may_write && !writes_elements) memory.clear();  // nothing is computed
  if (known.is_fused_optimizer) gradients_are_read(op, memory);
  return memory;
}

void check_host_access(const char* op, const at::TensorBase& tensor, bool writes,
                       const ArgumentPlace& place, const ZeroArguments& zeros) {
  if (!tensor.has_storage() || tensor.storage().nbytes() == 0) return;
  auto use = backend::use_of(tensor, writes);
  use.argument = place.argument;
  use.element = place.element;
  if (!OperandUses(op, operands_of(op), [&](const Schema&) { return zeros; }).apply(use)) return;
  backend::translate_errors(
      [&] { memory::checks::notify(&memory::CommandCheck::host_access, op, use); });
}

memory::AccessName name_access(const char* op, const memory::MemoryUse& use) {
  if (std::string_view(op) == "aten::_copy_from") op = "aten::copy_";  // the copy engine's
  const auto* const schema = find_schema(operator_name(op));
  const bool in_place = use.in_place || (schema && writes_an_input(*schema, use));
  const auto* const variant = in_place ? in_place_variant(op) : nullptr;
  auto argument = argument_of(op, schema, use);
  if (use.writes && in_place && schema) {  // an input, but the operator writes another argument
    const auto is_it = [&](const auto& each) { return in_backticks(each.name()) == argument; };
    const auto& arguments = (variant ? variant : schema)->arguments();
    const auto written = std::ranges::find_if(arguments, mutates);
    if (written != arguments.end() && std::ranges::none_of(arguments, [&](const auto& each) {
          return mutates(each) && is_it(each);
        }))
      argument = in_backticks(written->name());
  }
  return {variant ? text_of(variant->operator_name()) : op, std::move(argument)};
}

}  // namespace openreg::ops
