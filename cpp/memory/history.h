#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/block.h"

namespace openreg::memory {

/// PyTorch's name of a pool: (0, 0) is the default one.
using PoolId = std::pair<unsigned long long, unsigned long long>;

enum class Action : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,    ///< a segment was extended
  kSegmentUnmap,  ///< a part of a segment was returned
  kSnapshot,
  kOutOfMemory,
  kAnnotate,  ///< the program added a text to a held block
};
/// PyTorch's names of the actions, in their order.
inline constexpr auto kActionNames = std::to_array<std::string_view>(
    {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
     "segment_unmap", "snapshot", "oom", "annotate"});

/// Text of the program that is added to each entry that the calling thread makes from now on.
void set_thread_metadata(std::string text);
std::string thread_metadata();

/// An event in the history of a device's memory.
struct TraceEntry {
  Action action;
  std::uintptr_t address;  ///< for kOutOfMemory: bytes that the device had free
  std::size_t bytes;
  const Stream* stream;
  PoolId pool;
  std::int64_t time_us;  ///< since the epoch
  Context context;
  std::string metadata;
};

/// What is recorded. The default records nothing.
struct HistoryOptions {
  bool enabled = false;
  bool blocks = false;           ///< contexts of held blocks
  bool allocations = false;      ///< contexts in the entries of allocations
  bool frees = false;            ///< contexts in the entries of frees
  bool sizes_of_blocks = false;  ///< also by CUDA's rules, not what was requested
  std::size_t max_entries = 0;
  std::uint32_t skipped = 0;  ///< a bit for each Action that is not recorded
};

/// The latest events of a device's memory, oldest first. Not thread safe.
class History {
 public:
  const HistoryOptions& options() const noexcept { return options_; }
  bool enabled() const noexcept { return options_.enabled; }
  void configure(const HistoryOptions& options);
  void clear();
  /// Does nothing if history is not enabled.
  void record(Action action, const void* address, std::size_t bytes, const Stream* stream,
              PoolId pool, Context context, std::string metadata = thread_metadata());
  std::vector<TraceEntry> entries() const;
  std::size_t size() const noexcept { return ring_.size(); }

 private:
  HistoryOptions options_;
  std::vector<TraceEntry> ring_;
  std::size_t oldest_ = 0;  // where the next entry goes once the ring is full; 0 until then
};

}  // namespace openreg::memory
