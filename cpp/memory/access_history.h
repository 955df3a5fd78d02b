#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/launch_site.h"
#include "memory/memory_use.h"
#include "runtime/happens_before.h"

namespace openreg {
class Stream;
}

namespace openreg::memory {

enum class BlockKind : std::uint8_t {
  kUnknown,  ///< its allocation was not seen
  kDevice,
  kPinned,
  kImported,  ///< of another process
};

/// An allocation of a tensor's memory and what became of it; for reports.
struct AllocationInfo {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  BlockKind kind = BlockKind::kUnknown;
  const Stream* stream = nullptr;  ///< only of the device's memory
  LaunchSite allocated_by = 0;
  LaunchSite freed_by = 0;
  bool freed = false;
  /// Before the memory serves another tensor, the allocator waits for these.
  std::vector<const Stream*> recorded{};
};

/// Something that accesses memory: a command, or a run of a graph.
struct Accessor {
  const char* name = "";           ///< the operator; static
  const Stream* stream = nullptr;  ///< null: the host
  LaunchSite site = 0;
  LaunchSite replayed_by = 0;  ///< of a run of a graph; `site` captured the command
  bool in_graph = false;
  std::uint32_t thread = 0;  ///< this_thread_number() of the one that submitted it
  /// What happens before it, if some milestones in it were ahead then (HappensBefore::ahead()).
  VectorClock behind{};
};

/// An access that has been submitted.
struct Access {
  MemoryUse use;  ///< without sizes and strides
  Accessor by;
  SubmissionId submission;
  std::shared_ptr<const AllocationInfo> block;  ///< whose memory it was
};

/// Two unsynchronized accesses to a common byte, one of which writes.
struct Conflict {
  Access earlier;                               ///< in the order of submission
  std::uintptr_t byte;                          ///< which both use
  std::shared_ptr<const AllocationInfo> block;  ///< that holds it now
};

/// Whether all that conflicts with `old` in [begin, end) conflicts with `later`, which comes after
/// it, too.
bool replaces(const MemoryUse& later, const MemoryUse& old, std::uintptr_t begin = 0,
              std::uintptr_t end = UINTPTR_MAX);

/// The accesses to memory that later ones may conflict with. An access is kept until one that comes
/// after it makes it needless for all later ones. Used under a lock.
class AccessHistory {
 public:
  /// The first conflict of `use`, before which `known` happened, with an access that is not to be
  /// skipped.
  std::optional<Conflict> find_conflict(const MemoryUse& use, const VectorClock& known,
                                        const std::function<bool(const Access&)>& skip) const;
  /// Removes the accesses to `memory` of this submission, which was not enqueued after all.
  void withdraw(std::span<const MemoryUse> memory, SubmissionId submission);
  /// Adds an access that has no conflict, or whose conflict has been reported. `block`: whose
  /// memory it is, for a history that sees no allocations.
  void add(const MemoryUse& use, const Accessor& by, const VectorClock& known,
           const std::shared_ptr<const AllocationInfo>& block = nullptr);
  /// The block that holds the byte; null: its allocation was not seen.
  std::shared_ptr<const AllocationInfo> block_at(std::uintptr_t byte) const;

  /// Called when memory becomes a tensor's.
  void allocate(std::shared_ptr<AllocationInfo> block);
  /// Called when other streams use a tensor's memory (record_stream).
  void record_stream(const void* address, const Stream& stream);
  /// Called when a tensor's memory has been freed.
  void free(const void* address, LaunchSite site);

  /// Forgets the accesses to memory that is about to be used for something else.
  void forget(const void* begin, std::size_t bytes);

  /// Forgets what nothing can conflict with any more, because hosts have seen it complete; and more
  /// if it has become too much.
  void trim(const VectorClock& seen_by_hosts);
  std::size_t size() const noexcept { return size_; }
  void clear();

 private:
  struct Region {
    std::uintptr_t end;
    std::shared_ptr<AllocationInfo> block;
    std::vector<Access> accesses;
  };
  using Regions = std::map<std::uintptr_t, Region>;  // by begin; they do not overlap

  Regions::const_iterator first_at(std::uintptr_t address) const;
  std::vector<Regions::iterator> regions_for(const MemoryUse& use);
  void add_to(Regions::reference entry, const MemoryUse& use, const Accessor& by,
              const VectorClock& known, const std::shared_ptr<const AllocationInfo>& block);
  std::vector<Access> cut_out(std::uintptr_t begin, std::uintptr_t end);
  void forget_older_half(Region& region);
  template <class Predicate>
  void erase(Region& region, Predicate predicate);

  Regions regions_;
  std::size_t size_ = 0;  // accesses
};

}  // namespace openreg::memory
