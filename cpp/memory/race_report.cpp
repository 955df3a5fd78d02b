#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_name.h"
#include "base/quantity.h"
#include "memory/race_detector.h"
#include "runtime/stream.h"

namespace openreg::memory {

namespace {

std::string name_of(const Stream& stream) {
  return "stream " + std::to_string(stream.id()) + " of " + device_name(stream.device());
}

std::string line_of(LaunchSite site) {
  const auto words = describe(site);
  return words.empty() ? "an unknown line" : words;
}

// Collectives run on streams that the program does not have.
bool is_collective(const Accessor& by) { return std::string_view(by.name).starts_with("occl::"); }

// Where the program can order the access.
std::string place_of(const Accessor& by) { return line_of(by.in_graph ? by.replayed_by : by.site); }

// "`self` (4096 elements, float32)"
std::string describe_argument(const std::string& name, const MemoryUse& use) {
  std::string text = name.empty() ? "its tensor " + std::to_string(use.number) : name;
  text += " (" + format_count(use.footprint.bytes() / use.itemsize, "element") + ", " + use.dtype;
  return text + (use.some_elements ? ", some of them)" : ")");
}

// "on stream 3 of openreg:0, launched by a.py:3 in f"
std::string origin_of(const Accessor& by) {
  if (!by.stream) return "on the host, called by " + line_of(by.site);
  const auto where = "on " + name_of(*by.stream);
  if (!by.in_graph) return where + ", launched by " + line_of(by.site);
  return where + ", in a graph that was captured by " + line_of(by.site) + " and replayed by " +
         line_of(by.replayed_by);
}

std::string describe_access(const Accessor& by, const MemoryUse& use, const char* verb,
                            NameAccess* name_access) {
  auto name = name_access ? name_access(by.name, use) : AccessName{by.name, ""};
  if (is_collective(by)) name.argument = use.writes ? "its output" : "its input";
  return name.op + " " + verb + " " + describe_argument(name.argument, use) + " " + origin_of(by);
}

std::string describe_block(const AllocationInfo& block) {
  std::string text = "a block of " + format_size(block.bytes);
  if (block.kind == BlockKind::kPinned) text += " of pinned memory";
  if (block.kind == BlockKind::kImported) text += " of another process";
  if (block.kind != BlockKind::kUnknown)
    text += block.kind == BlockKind::kImported ? ", received" : ", allocated";
  if (block.stream) text += " on " + name_of(*block.stream);
  if (block.kind != BlockKind::kUnknown) text += " by " + line_of(block.allocated_by);
  if (block.freed) text += " and freed by " + line_of(block.freed_by);
  return text;
}

// The index of the element that holds the byte: the greatest strides decide first.
std::string index_of(std::uintptr_t byte, const MemoryUse& use) {
  auto offset = static_cast<std::int64_t>((byte - use.footprint.begin()) / use.itemsize);
  if (use.sizes.empty()) return std::to_string(offset);  // unknown; or the only element
  std::vector<std::size_t> order(use.sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return use.strides[i]; });
  std::vector<std::int64_t> index(order.size(), 0);
  for (const auto i : order) {
    if (use.sizes[i] < 2 || use.strides[i] == 0) continue;
    index[i] = std::min(offset / use.strides[i], use.sizes[i] - 1);
    offset -= index[i] * use.strides[i];
  }
  std::string text;
  for (const auto i : index) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return text;
}

std::string describe_overlap(const Conflict& conflict, const MemoryUse& use) {
  const auto& block = conflict.block ? *conflict.block : *conflict.earlier.block;
  return "The first element in common is [" + index_of(conflict.byte, use) +
         "] of the second tensor, byte " + std::to_string(conflict.byte - block.begin) + " of " +
         describe_block(block);
}

// The memory has served another tensor since the first access.
std::string suggested_fix_of_reuse(const Access& earlier, const Accessor& by,
                                   const RaceContext& context) {
  const auto& then = *earlier.block;
  const auto first = name_of(*earlier.by.stream);
  const auto belonged =
      "The memory belonged to another tensor, which was freed by " + line_of(then.freed_by);
  if (context.owner_has_waited && by.stream && then.stream && then.stream != by.stream) {
    const auto owner = name_of(*then.stream);
    const auto second = name_of(*by.stream);
    return belonged + ". " + owner + ", which allocated it, has waited for " + first + ", and " +
           second + " has not. Let " + second + " wait for " + owner +
           " before it uses the new tensor";
  }
  const auto text = belonged + " while " + first + " still used it. ";
  if (then.stream && then.stream != earlier.by.stream) {
    return text + "Call record_stream() of that tensor with " + first +
           " before it is freed, or let " + name_of(*then.stream) + " wait for it first";
  }
  return text + "Let " + (by.stream ? name_of(*by.stream) : "the host") + " wait for " + first +
         " before the new tensor is used";
}

std::string suggested_fix(const Conflict& conflict, const Accessor& by,
                          const RaceContext& context) {
  const auto& earlier = conflict.earlier;
  if (conflict.block && earlier.block && earlier.block != conflict.block && earlier.block->freed)
    return suggested_fix_of_reuse(earlier, by, context);
  const auto first = name_of(*earlier.by.stream);
  const auto from = place_of(earlier.by);
  if (!by.stream) {
    if (is_collective(earlier.by)) {
      return "Before the host uses the memory, call wait() of the work of " + from +
             ", and synchronize() of the stream that is current then";
    }
    return "Before the host uses the memory, call synchronize() of " + first +
           ", or of an event that is recorded on it after " + from;
  }
  const auto second =
      is_collective(by) ? "the stream that is current at " + place_of(by) : name_of(*by.stream);
  if (is_collective(earlier.by)) {
    return "Let " + second + " wait for the collective of " + from + " before " + place_of(by) +
           ", by wait() of its work while that stream is current";
  }
  if (context.waited_too_early && !is_collective(by)) {
    return "The event of " + first + " for which " + second + " has waited was recorded before " +
           from + ": record it, or call wait_stream(), after that line";
  }
  return "Let " + second + " wait for " + first + " after " + from + " and before " + place_of(by) +
         ", by wait_stream() or by an event that is recorded in between";
}

}  // namespace

std::string describe_use(const Accessor& by, const MemoryUse& use, const AllocationInfo* block,
                         NameAccess* name) {
  const auto text = describe_access(by, use, use.writes ? "writes" : "reads", name);
  return block ? text + "; " + describe_block(*block) : text;
}

std::string describe_race(const Conflict& conflict, const MemoryUse& use, const Accessor& by,
                          const RaceContext& context, NameAccess* name) {
  const auto& earlier = conflict.earlier;
  return "openreg: unsynchronized accesses to the same memory:\n  " +
         describe_access(earlier.by, earlier.use, earlier.use.writes ? "wrote" : "read", name) +
         ";\n  " + describe_access(by, use, use.writes ? "writes" : "reads", name) + ".\n  " +
         describe_overlap(conflict, use) + ".\n  " + suggested_fix(conflict, by, context) + ".";
}

}  // namespace openreg::memory
