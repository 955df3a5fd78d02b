#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/launch_site.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "memory/access_history.h"
#include "memory/command_check.h"
#include "memory/memory_use.h"
#include "runtime/capture.h"
#include "runtime/happens_before.h"

namespace openreg::memory {

/// Two accesses to the same memory, of which one writes, lack an order.
class RaceError : public Error {
 public:
  using Error::Error;
};

/// Finds accesses to the same memory that nothing orders: between streams, between a stream and the
/// host, within a graph, and in memory that is reused too early (TORCH_OPENREG_DETECT_RACES). See
/// Note [Detecting races] in race_detector.cpp. Thread safe.
class RaceDetector final : public CommandCheck {
 public:
  /// The process's detector; nullptr unless it is on.
  static RaceDetector* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Called when all devices are idle.
  static void set_mode(RaceDetectionMode mode);
  static RaceDetectionMode mode() noexcept { return mode_.load(std::memory_order_relaxed); }

  // Throw RaceError if an access is unordered with an earlier one; with kWarn, warn once for each
  // pair of lines. A run of a graph, which may be captured as a part of another, is one access to
  // all that its commands use.
  void before_enqueue(Launch& launch) override;
  void before_replay(Launch& launch) override { before_enqueue(launch); }
  void host_access(const char* op, const MemoryUse& memory) override;
  void enqueued(Launch& launch) override;
  void withdrawn(Launch& launch) override;
  void graph_destroyed(CaptureId capture) override;

  /// The reports since the last call, the first few of them: for test runners, as a program may
  /// catch the exception.
  std::vector<std::string> take_reports();
  /// Adds one, of an access that was found otherwise.
  void add_report(const std::string& report);
  /// A use of memory, as a report names it: "aten::copy_ writes `self` (...); a block of ...".
  std::string describe_use(const Accessor& by, const MemoryUse& use) OPENREG_EXCLUDES(mutex_);

  /// `by`: the line that allocated it, 0 if it is unknown.
  void allocated(const void* address, std::size_t bytes, const Stream& stream,
                 LaunchSite by = launch_site());
  void allocated(const NewBlock& block) override {
    allocated(block.address, block.bytes, block.stream);
  }
  void freed(const void* address, Where* where = nullptr) override;
  void used_by_stream(const void* address, Stream& stream) override;
  void reused(const void* memory, std::size_t bytes, BlockKind kind) override;
  void forgotten(const void* memory, std::size_t bytes) override;

 private:
  /// A capture under way, or captured. In it streams are chains of nodes.
  struct Captured {
    AccessHistory history;
    std::unordered_map<const Stream*, std::uint32_t> chains;
    std::map<std::uint32_t, VectorClock> nodes;  // what happens before the successors of a node
    std::vector<Access> uses;                    // of all nodes, each memory once
  };
  using Pair = std::tuple<std::string, LaunchSite, std::string, LaunchSite>;

  /// Accesses, before which `known` happens.
  struct Accesses {
    std::span<const MemoryUse> memory;
    std::span<const Accessor> by;
    const VectorClock& known;
  };

  /// Reports what is unordered with the accesses so far: of a capture, or else (null) of all
  /// streams. If it returns, it has called `add` at a moment when there was nothing left to report,
  /// so of two threads that race one sees the other.
  template <class Add>
  void expect_order(const AccessHistory* captured, const Accesses& accesses, Add add)
      OPENREG_EXCLUDES(mutex_);
  /// With kWarn, the next conflict that has not been reported, and which of the accesses it is.
  std::optional<std::pair<Conflict, std::size_t>> find_conflict(const AccessHistory& history,
                                                                const Accesses& accesses)
      OPENREG_REQUIRES(mutex_);
  void report(const Conflict& conflict, const MemoryUse& use, const Accessor& by,
              const VectorClock& known) OPENREG_EXCLUDES(mutex_);
  void find_accesses(Launch& launch) OPENREG_EXCLUDES(mutex_);
  void trim_if_large() OPENREG_REQUIRES(mutex_);
  /// What happens before the successors of a node of a capture under way.
  const VectorClock& clock_of_node(Captured& captured, CaptureId capture, std::uint32_t node)
      OPENREG_REQUIRES(mutex_);
  void check_captured(Launch& launch) OPENREG_EXCLUDES(mutex_);

  static std::atomic<RaceDetector*> instance_;
  static std::atomic<RaceDetectionMode> mode_;

  Mutex mutex_;  // never held while something is enqueued
  AccessHistory history_ OPENREG_GUARDED_BY(mutex_);
  std::size_t trim_at_ OPENREG_GUARDED_BY(mutex_) = 1 << 12;
  std::map<CaptureId, Captured> captured_ OPENREG_GUARDED_BY(mutex_);
  std::set<Pair> warned_ OPENREG_GUARDED_BY(mutex_);
  std::vector<std::string> reports_ OPENREG_GUARDED_BY(mutex_);
};

/// How a report names an access.
struct AccessName {
  std::string op;
  std::string argument;  ///< "`self`", "the result"; empty if it is unknown
};
using NameAccess = AccessName(const char* op, const MemoryUse& use);

/// What layers above provide; each may be null.
struct RaceHooks {
  NameAccess* name = nullptr;
  void (*warn)(const std::string& message) = nullptr;
};
/// Replaces the previous ones. Called while the library is loaded, and by tests.
void install_race_hooks(const RaceHooks& hooks);

/// What is known besides a conflict itself: it decides which fix the report suggests.
struct RaceContext {
  /// The second stream has waited for some work of the first one, but not for this.
  bool waited_too_early = false;
  /// The stream that allocated the memory before has waited for the first access.
  bool owner_has_waited = false;
};

/// The parts of a report (race_report.cpp): of a use of the block, which may be unknown, and of a
/// conflict.
std::string describe_use(const Accessor& by, const MemoryUse& use, const AllocationInfo* block,
                         NameAccess* name);
std::string describe_race(const Conflict& conflict, const MemoryUse& use, const Accessor& by,
                          const RaceContext& context, NameAccess* name);

}  // namespace openreg::memory
