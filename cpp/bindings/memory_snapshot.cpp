// The state and the history of the device allocator as Python objects, in the format of
// torch.cuda.memory._snapshot(), which PyTorch's viewers read.
#include <c10/core/AllocatorConfig.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "address_space/address_space.h"
#include "backend/memory_history.h"
#include "base/settings.h"
#include "bindings/bindings.h"
#include "memory/command_check.h"
#include "memory/device_heap.h"
#include "memory/history.h"
#include "runtime/stream.h"

namespace openreg::bindings {

namespace {

// --- Stacks ---

// The stacks of a snapshot. They are symbolized together, without a lock and without the GIL,
// because C++ frames take milliseconds each; a frame that several stacks have is one object in
// Python.
class Stacks {
 public:
  void add(const memory::Context& context) {
    if (context == nullptr || !index_.try_emplace(context.get(), contexts_.size()).second) return;
    contexts_.push_back(context);
  }
  void symbolize() {
    std::vector<torch::CapturedTraceback*> tracebacks;
    tracebacks.reserve(contexts_.size());
    for (const auto& context : contexts_)
      tracebacks.push_back(static_cast<torch::CapturedTraceback*>(context.get()));
    symbolized_ = torch::symbolize(tracebacks);
  }
  /// The stack in the form that PyTorch's viewers expect, innermost frame first; empty without a
  /// context. To be called with the GIL, after symbolize().
  nb::list frames(const memory::Context& context) {
    if (context == nullptr) return nb::list();
    const auto [found, is_new] = lists_.try_emplace(context.get());
    if (is_new) {
      for (const auto frame : symbolized_.tracebacks.at(index_.at(context.get())))
        found->second.append(frame_at(frame));
    }
    return found->second;
  }

 private:
  nb::dict frame_at(std::size_t index) {
    if (frames_.empty()) frames_.resize(symbolized_.all_frames.size());
    auto& frame = frames_.at(index);
    if (!frame) {
      const auto& from = symbolized_.all_frames[index];
      frame.emplace();
      (*frame)["filename"] = from.filename;
      (*frame)["line"] = from.lineno;
      (*frame)["name"] = from.funcname;
    }
    return *frame;
  }

  std::vector<memory::Context> contexts_;
  std::unordered_map<const void*, std::size_t> index_;  // into contexts_
  torch::SymbolizedTracebacks symbolized_;
  std::vector<std::optional<nb::dict>> frames_;
  std::unordered_map<const void*, nb::list> lists_;
};

// --- Segments ---

const char* name_of(memory::Block::State state) {
  if (state == memory::Block::State::kHeld) return "active_allocated";
  return state == memory::Block::State::kPending ? "active_pending_free" : "inactive";
}

// Address 0 is CUDA's default stream, and id 0 is ours.
std::int64_t id_of(const Stream* stream) { return stream == nullptr ? 0 : stream->id(); }

nb::dict to_dict(const memory::BlockInfo& block, Stacks& stacks) {
  nb::dict result;
  result["address"] = block.address;
  result["size"] = block.bytes;
  result["requested_size"] = block.requested;
  result["state"] = name_of(block.state);
  result["frames"] = stacks.frames(block.context);
  return result;
}

nb::dict to_dict(const memory::SegmentInfo& segment, int device, Stacks& stacks) {
  std::size_t allocated = 0;
  std::size_t active = 0;
  std::size_t requested = 0;
  nb::list blocks;
  for (const auto& block : segment.blocks) {
    const bool is_held = block.state == memory::Block::State::kHeld;
    if (is_held) allocated += block.bytes;
    if (is_held || block.state == memory::Block::State::kPending) active += block.bytes;
    requested += block.requested;
    blocks.append(to_dict(block, stacks));
  }
  nb::dict result;
  result["device"] = device;
  result["address"] = segment.address;
  result["total_size"] = segment.bytes;
  result["allocated_size"] = allocated;
  result["active_size"] = active;
  result["requested_size"] = requested;
  result["stream"] = id_of(segment.stream);
  result["segment_type"] = segment.size_class == memory::SizeClass::kSmall ? "small" : "large";
  result["segment_pool_id"] = nb::cast(segment.pool);
  result["is_expandable"] = segment.is_expandable;
  result["frames"] = stacks.frames(segment.context);
  result["blocks"] = blocks;
  return result;
}

// --- History ---

nb::dict to_dict(const memory::TraceEntry& entry, Stacks& stacks) {
  nb::dict result;
  result["action"] = memory::kActionNames.at(static_cast<std::size_t>(entry.action));
  result[entry.action == memory::Action::kOutOfMemory ? "device_free" : "addr"] = entry.address;
  result["size"] = entry.bytes;
  result["stream"] = id_of(entry.stream);
  result["time_us"] = entry.time_us;
  result["pool_id"] = nb::cast(entry.pool);
  result["frames"] = stacks.frames(entry.context);
  result["compile_context"] = "";
  result["user_metadata"] = entry.metadata;
  return result;
}

// --- Snapshots ---

nb::dict allocator_settings() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  nb::dict divisions;
  std::size_t from = 1;  // MiB
  for (const auto count : Config::roundup_power2_divisions()) {
    divisions[nb::cast(std::to_string(from))] = count;
    from *= 2;
  }
  nb::dict result;
  result["PYTORCH_ALLOC_CONF"] = Config::last_allocator_settings();
  result["max_split_size"] = static_cast<std::int64_t>(Config::max_split_size());  // -1: no limit
  result["garbage_collection_threshold"] = Config::garbage_collection_threshold();
  result["expandable_segments"] = Config::use_expandable_segments();
  result["roundup_power2_divisions"] = divisions;
  return result;
}

struct DeviceState {
  std::vector<memory::SegmentInfo> segments;
  std::vector<memory::TraceEntry> trace;
};

DeviceState take(int device, const memory::PoolId* pool, bool include_traces) {
  return memory::device_heap(device).locked([&](memory::Heap& heap) {
    DeviceState state{.segments = heap.segments(pool), .trace = {}};
    const auto active = static_cast<std::size_t>(heap.statistics().active_bytes.current());
    heap.history().record(memory::Action::kSnapshot, nullptr, active, nullptr,
                          pool == nullptr ? memory::PoolId{} : *pool, {});
    if (include_traces && !backend::is_allocation_log()) state.trace = heap.history().entries();
    return state;
  });
}

nb::dict snapshot(std::optional<int> device, std::optional<memory::PoolId> pool,
                  bool include_traces) {
  std::vector<DeviceState> states(static_cast<std::size_t>(device_count()));
  Stacks stacks;
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (device && static_cast<std::size_t>(*device) != i) continue;
      states[i] = take(static_cast<int>(i), pool ? &*pool : nullptr, include_traces);
      for (const auto& segment : states[i].segments) {
        stacks.add(segment.context);
        for (const auto& block : segment.blocks) stacks.add(block.context);
      }
      for (const auto& entry : states[i].trace) stacks.add(entry.context);
    }
    stacks.symbolize();
  }
  nb::list segments;
  nb::list traces;
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const auto& segment : states[i].segments)
      segments.append(to_dict(segment, static_cast<int>(i), stacks));
    nb::list trace;
    for (const auto& entry : states[i].trace) trace.append(to_dict(entry, stacks));
    traces.append(trace);
  }
  nb::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = allocator_settings();
  result["external_annotations"] = nb::list();
  return result;
}

/// Calls `work` with the heap that `address` belongs to, under its lock, and the address of the
/// block there; does nothing if the address is not the device's.
template <class F>
void with_block_at(std::uintptr_t address, F&& work) {
  const auto* pointer = reinterpret_cast<const void*>(address);
  const auto* space = AddressSpace::get_if_reserved();
  const int device = space == nullptr ? -1 : space->device_of(pointer);
  if (device == -1) return;
  pointer = memory::checks::block_of(pointer);
  memory::device_heap(device).locked([&](memory::Heap& heap) { work(heap, pointer); });
}

std::optional<nb::list> allocation_traceback(std::uintptr_t address) {
  Stacks stacks;
  memory::Context context;
  {
    const nb::gil_scoped_release release;
    with_block_at(address,
                  [&](memory::Heap& heap, const void* block) { context = heap.context_of(block); });
    stacks.add(context);
    stacks.symbolize();
  }
  if (context == nullptr) return std::nullopt;
  return stacks.frames(context);
}

// --- Recording ---

void annotate(std::uintptr_t address, const std::string& text) {
  const auto context = backend::context_of_allocation();  // takes the GIL, so before the lock
  with_block_at(
      address, [&](memory::Heap& heap, const void* block) { heap.annotate(block, text, context); });
}

void record_history(bool enabled, bool trace, int context, bool cpp_stacks, std::size_t max_entries,
                    bool clear, const std::vector<std::string>& skip_actions) {
  using c10::CachingDeviceAllocator::RecordContext;
  backend::record_memory_history({.enabled = enabled,
                                  .trace = trace,
                                  .context = static_cast<RecordContext>(context),
                                  .cpp_stacks = cpp_stacks,
                                  .max_entries = max_entries,
                                  .clear = clear,
                                  .skip_actions = skip_actions});
}

std::string python_stack_wrapper(backend::ReadStack read) {
  if (!Py_IsInitialized()) return read();
  const nb::gil_scoped_acquire gil;  // an exception may be set while another thread holds the GIL
  const nb::error_scope keep;
  return read();
}

}  // namespace

void init_memory_snapshot(nb::module_& m) {
  backend::install_python_stack_wrapper(&python_stack_wrapper);
  m.def("memory_snapshot", &snapshot, nb::arg("device").none(), nb::arg("pool").none(),
        nb::arg("include_traces"),
        "Returns a snapshot of all devices and pools, or only of those given.");
  m.def("allocation_traceback", &allocation_traceback, nb::arg("address"));
  m.def("record_memory_history", &record_history, nb::arg("enabled"), nb::arg("trace"),
        nb::arg("context"), nb::arg("cpp_stacks"), nb::arg("max_entries"), nb::arg("clear"),
        nb::arg("skip_actions"), ReleaseGil(),
        "See backend::HistoryRequest; `context` is a value of c10's RecordContext.");
  m.def("annotate_memory", &annotate, nb::arg("address"), nb::arg("text"), ReleaseGil());
  m.def("set_memory_metadata", &memory::set_thread_metadata, nb::arg("metadata"));
  m.def("get_memory_metadata", &memory::thread_metadata);
}

}  // namespace openreg::bindings
