#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "runtime/milestones.h"
#include "runtime/vector_clock.h"

namespace openreg {

class Fence;
class Stream;

/// Which submissions are ordered, whatever the speed of streams and hosts. Streams are in order
/// within themselves; events, waits and copies order one after another; and what a host has seen
/// complete happens before all that any host submits later. See Note [Happens-before] in
/// happens_before.cpp. Thread safe; its lock is a leaf.
class HappensBefore {
 public:
  /// The tracker; null unless order is tracked. If it is not, this check is the only cost.
  static HappensBefore* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Starts or stops tracking, for all threads. All that was submitted before has completed.
  static void track(bool on) OPENREG_EXCLUDES(tracking_);
  /// Starts tracking for the rest of the process.
  static void track_always() OPENREG_EXCLUDES(tracking_);

  /// Adds the stream's next submission. Returns what happens before it; last() is its id.
  VectorClock submit(const Stream& stream);
  /// What happens before all that the stream runs later: for records, and for waits of the host.
  VectorClock clock_of(const Stream& stream);
  /// Declares that later submissions of the stream come after what `clock` includes.
  void wait(const Stream& stream, const VectorClock& clock);
  /// Called when a host has observed that what `clock` includes has completed. Calls
  /// Callbacks::on_host_progress, even if another thread has observed it already, so the caller
  /// holds no lock.
  void host_observed(const VectorClock& clock);
  /// The clock of what hosts have seen.
  VectorClock seen_by_hosts();

  // Milestones order collectives whose ranks are threads of this process.

  /// Adds a sequence of milestones. Returns its number, which its milestones have as their stream.
  std::uint32_t add_milestones(std::uint64_t group, std::uint32_t home);
  void set_home(std::uint32_t sequence, std::uint32_t home);
  void end_milestones(std::uint32_t sequence);
  /// Declares that what the stream has been given so far happens before the milestone.
  void reach(SubmissionId milestone, const Stream& stream);
  /// Declares that later submissions of the stream come after the milestone, which may be ahead.
  void wait(const Stream& stream, SubmissionId milestone);
  /// The milestones that the clock includes and that are ahead.
  std::vector<SubmissionId> ahead(const VectorClock& clock);
  /// Whether a milestone that the clock includes is ahead, and may turn out to lie between what two
  /// threads, or one, have submitted.
  bool may_lie_between(VectorClock clock, std::uint32_t first, std::uint32_t second);

 private:
  struct State {
    std::uint32_t number = 0;
    VectorClock clock{};
    std::uint64_t seen_version = 0;  // of seen_, when it was joined
    bool is_behind = false;          // it includes milestones that were ahead
    std::uint64_t reached = 0;       // reached_, at that time
  };
  State& state_of(const Stream& stream) OPENREG_REQUIRES(mutex_);
  void complete(State& state) OPENREG_REQUIRES(mutex_);

  static HappensBefore& instance();

  static std::atomic<HappensBefore*> instance_;
  static Mutex tracking_;
  static bool always_ OPENREG_GUARDED_BY(tracking_);

  Mutex mutex_;
  std::unordered_map<const Stream*, State> streams_ OPENREG_GUARDED_BY(mutex_);
  VectorClock seen_ OPENREG_GUARDED_BY(mutex_);
  std::uint64_t seen_version_ OPENREG_GUARDED_BY(mutex_) = 0;
  bool seen_is_behind_ OPENREG_GUARDED_BY(mutex_) = false;    // as State::is_behind
  std::uint32_t last_number_ OPENREG_GUARDED_BY(mutex_) = 0;  // of streams and milestones
  Milestones milestones_ OPENREG_GUARDED_BY(mutex_);
  std::uint64_t reached_ OPENREG_GUARDED_BY(mutex_) = 0;  // number of calls of reach()
};

// For the runtime, which calls these where it orders work; they do nothing unless it is tracked.

/// While it exists, waits of this thread are the library's own: the program has not observed what
/// they wait for.
class InternalWaitScope {
 public:
  InternalWaitScope() noexcept : before_(internal_) { internal_ = true; }
  ~InternalWaitScope() { internal_ = before_; }
  InternalWaitScope(const InternalWaitScope&) = delete;
  InternalWaitScope& operator=(const InternalWaitScope&) = delete;
  static bool here() noexcept { return internal_; }

 private:
  const bool before_;
  static constinit thread_local bool internal_;
};

/// Called when the fence is about to be enqueued on the stream.
void note_record(Fence& fence, const Stream& stream);
/// Called when the stream's later work has to wait for the fence.
void note_ordered_after(const Stream& stream, const Fence& fence);
/// Called when a host has observed that the fence is complete.
void note_host_observed(const Fence& fence);
/// Called before the host checks whether the stream is idle; if it is, note_host_observed()
/// follows.
std::unique_ptr<const VectorClock> clock_if_tracked(const Stream& stream);
/// Called when a host has observed that the stream has run all that `before` includes.
void note_host_observed(const std::unique_ptr<const VectorClock>& before);

}  // namespace openreg
