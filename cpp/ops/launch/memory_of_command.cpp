#include "ops/launch/memory_of_command.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "backend/race_detection.h"
#include "ops/wire/command_layout.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

namespace {

// Operators that use some elements of their first tensor, which depend on the values of others.
constexpr std::array<std::string_view, 12> kReadSome{"index",
                                                     "_unsafe_index",
                                                     "index_select",
                                                     "gather",
                                                     "take",
                                                     "embedding",
                                                     "_embedding_bag",
                                                     "masked_select",
                                                     "_unsafe_masked_index",
                                                     "_embedding_bag_forward_only",
                                                     "embedding_bag",
                                                     "take_along_dim"};
constexpr std::array<std::string_view, 20> kWriteSome{"index_put_",
                                                      "_index_put_impl_",
                                                      "_unsafe_index_put",
                                                      "index_copy",
                                                      "index_copy_",
                                                      "index_add",
                                                      "index_add_",
                                                      "index_fill_",
                                                      "index_reduce",
                                                      "index_reduce_",
                                                      "scatter",
                                                      "scatter_",
                                                      "scatter_add",
                                                      "scatter_add_",
                                                      "scatter_reduce",
                                                      "scatter_reduce_",
                                                      "masked_fill_",
                                                      "masked_scatter_",
                                                      "put_",
                                                      "embedding_renorm_"};

/// "aten::index_put_.hacked" -> "index_put_".
std::string_view base_name(std::string_view op) {
  const auto begin = op.find("::");
  if (begin != std::string_view::npos) op.remove_prefix(begin + 2);
  return op.substr(0, op.find('.'));
}

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

backend::MemoryOfCommand memory_of_command(const char* op, std::span<const std::byte> command,
                                           const ArgumentWriter& arguments) {
  const CommandView view(command);
  const auto base = base_name(op);
  backend::MemoryOfCommand memory;
  std::uint16_t number = 0;
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
    memory.push_back(
        {.storage = begin,
         .storage_bytes = storage.nbytes,
         .footprint = {begin + static_cast<std::size_t>(tensor.storage_offset) * itemsize, itemsize,
                       sizes, strides},
         .writes = writes,
         .some_elements =
             this_number == 0 && (writes ? contains(kWriteSome, base) : contains(kReadSome, base)),
         .pinned = (shape.flags & kPinned) != 0,
         .number = this_number,
         .argument = place.argument,
         .element = place.element,
         .itemsize = static_cast<std::uint16_t>(itemsize),
         .dtype = backend::dtype_name(shape.type()),
         .sizes = sizes,
         .strides = strides});
  }
  return memory;
}

std::string argument_name(const char* op, const memory::MemoryUse& use) {
  const auto suffix = "[" + std::to_string(use.element) + "]`";
  if (use.argument == ArgumentPlace::kResult)
    return use.element == 0 ? "the result" : "result " + std::to_string(use.element);
  if (use.argument == ArgumentPlace::kOut) return use.element == 0 ? "`out`" : "`out" + suffix;
  const std::string full(op);
  const auto dot = std::min(full.find('.'), full.size());
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {full.substr(0, dot), full.substr(std::min(dot + 1, full.size()))});
  if (!handle) return "";
  // A kernel that does not say which arguments its tensors are takes those of the schema in order.
  auto left = use.number;
  std::int16_t number = 0;
  for (const auto& argument : handle->schema().arguments()) {
    const auto this_number = number++;
    if (!holds_tensors(*argument.type())) continue;
    const bool found =
        use.argument == ArgumentPlace::kUnknown ? left-- == 0 : use.argument == this_number;
    if (!found) continue;
    const bool is_list = argument.type()->str().find('[') != std::string::npos;
    return "`" + argument.name() + (is_list ? suffix : "`");
  }
  return use.argument == ArgumentPlace::kUnknown && use.writes ? "the result" : "";
}

}  // namespace openreg::ops
