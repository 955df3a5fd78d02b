#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/mutex.h"

namespace openreg {

class Fence;
class Stream;

/// A submission: which one of which stream.
struct Moment {
  std::uint32_t stream = 0;  ///< a number of HappensBefore's, from 1; 0: none
  std::uint64_t number = 0;  ///< from 1

  bool operator==(const Moment&) const = default;
};

/// A set of submissions that holds, of each stream, the first ones up to some number: a vector
/// clock. A value type, cheap to copy.
class VectorClock {
 public:
  bool includes(Moment moment) const noexcept { return number_of(moment.stream) >= moment.number; }
  /// The number of the stream's last submission that it includes; 0: none.
  std::uint64_t number_of(std::uint32_t stream) const noexcept;
  /// The newest submission of the stream that the clock was taken of.
  Moment last() const noexcept { return last_; }

  /// Adds what `other` includes. False: nothing was new.
  bool join(const VectorClock& other);
  void set_last(Moment moment) noexcept { last_ = moment; }
  /// Includes one more submission of the stream that the clock is of, and returns it.
  Moment advance(std::uint32_t stream) noexcept { return last_ = {stream, last_.number + 1}; }

 private:
  using Numbers = std::vector<std::uint64_t>;  // by stream

  std::shared_ptr<const Numbers> numbers_;  // shared by clocks; null: none
  Moment last_;                             // may be newer than what the numbers say
};

/// Which submissions are ordered, whatever the speed of streams and hosts. Streams are in order
/// within themselves; events, waits and copies order one after another; and what a host has seen
/// complete happens before all that any host submits later. See Note [Happens-before] in
/// happens_before.cpp. Thread safe; its lock is a leaf.
class HappensBefore {
 public:
  /// nullptr unless it is tracked. This check is all that it costs otherwise.
  static HappensBefore* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Begins or ends to track, for all threads. What was submitted before has completed.
  static void track(bool on);

  /// The stream's next submission, and what happens before it.
  VectorClock submit(const Stream& stream);
  /// What happens before all that the stream runs later: for records, and for waits of the host.
  VectorClock clock_of(const Stream& stream);
  /// Later submissions of the stream come after what `clock` includes.
  void wait(const Stream& stream, const VectorClock& clock);
  /// A host has seen that what `clock` includes has completed. Calls
  /// Callbacks::hosts_have_seen_more, so the caller holds no lock: also if another thread has seen
  /// it, which may not have got so far.
  void host_saw(const VectorClock& clock);
  /// What hosts have seen.
  VectorClock seen_by_hosts();

 private:
  struct State {
    std::uint32_t number = 0;
    VectorClock clock{};
    std::uint64_t seen_version = 0;  // of seen_, when it was joined
  };
  State& state_of(const Stream& stream) OPENREG_REQUIRES(mutex_);

  static std::atomic<HappensBefore*> instance_;

  Mutex mutex_;
  std::unordered_map<const Stream*, State> streams_ OPENREG_GUARDED_BY(mutex_);
  VectorClock seen_ OPENREG_GUARDED_BY(mutex_);
  std::uint64_t seen_version_ OPENREG_GUARDED_BY(mutex_) = 0;
};

// For the runtime, which calls these where it orders work; they do nothing unless it is tracked.

/// While it exists, waits of this thread are the library's own: no part of the program sees them.
class UnseenWaits {
 public:
  UnseenWaits() noexcept : before_(unseen_) { unseen_ = true; }
  ~UnseenWaits() { unseen_ = before_; }
  UnseenWaits(const UnseenWaits&) = delete;
  UnseenWaits& operator=(const UnseenWaits&) = delete;
  static bool here() noexcept { return unseen_; }

 private:
  const bool before_;
  static constinit thread_local bool unseen_;
};

/// The fence is about to be enqueued on the stream.
void note_record(Fence& fence, const Stream& stream);
/// The stream waits for the fence.
void note_ordered_after(const Stream& stream, const Fence& fence);
/// A host has seen that the fence is complete, or that the stream has run all that `before`
/// includes.
void note_host_saw(const Fence& fence);
/// To be called before the host looks whether the stream is idle, and note_host_saw() if it is.
std::unique_ptr<const VectorClock> clock_if_tracked(const Stream& stream);
void note_host_saw(const std::unique_ptr<const VectorClock>& before);

}  // namespace openreg
