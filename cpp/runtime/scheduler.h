#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <vector>

#include "base/intrusive_list.h"
#include "base/mutex.h"
#include "runtime/fence.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/stream_impl.h"
#include "runtime/waiter.h"

namespace openreg {

/// Decides which thread owns which stream, and how many engines there are. One per process, never
/// destroyed. See Note [Who runs a stream] in scheduler.cpp and docs/architecture.md.
///
/// Note [Lock order] of the runtime, outer to inner:
///   Fence's mutex > Scheduler's mutex
///   the mutex of engine_gate.cpp > Scheduler's mutex
///   GraphExec's mutex > all that an enqueue takes
///   Captures' mutex > what LaunchSiteFinder::describe takes
///   the trace's mutex > the mutexes of its shards
///   the mutex of fault_table.cpp > the mutexes of its faults
///   an executor's `starting` > its `mutex` > what LaunchSiteFinder::describe takes
///   those two, and the mutexes of AddressSpace > the mutex of an ExecutorProcess
/// All others are leaves: while one of them is held, no other lock is taken and nothing is waited
/// for. No other callback, no kernel, and no destructor of what a kernel threw runs under a lock of
/// the runtime. Clang checks the part of this that is annotated (base/mutex.h).
class Scheduler {
 public:
  static Scheduler& get();

  /// Starts the first engine of each kind; more follow when there is work for them. Throws Error if
  /// the system refuses a thread.
  void start() OPENREG_EXCLUDES(scheduler_mutex);
  /// From now on no run slice begins, and a run slice under way ends after its command.
  void stop() noexcept OPENREG_EXCLUDES(scheduler_mutex);
  /// Returns when the run slices that were under way at stop() have ended, except those whose
  /// command may block or itself sleeps in a wait.
  void wait_until_stopped() noexcept OPENREG_EXCLUDES(scheduler_mutex);

  // Hints for the runner of a stream; they may be slightly out of date.
  bool has_ready(EngineKind kind) const noexcept {
    return of(kind).ready.load(std::memory_order_relaxed) > 0;
  }
  bool has_ready_high(EngineKind kind) const noexcept {
    return of(kind).ready_high.load(std::memory_order_relaxed) > 0;
  }
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }
  /// Whether engines shall run nothing (engine_gate.h).
  bool holds_engines() const noexcept { return holding_.load(std::memory_order_relaxed); }
  void hold_engines(bool hold) OPENREG_EXCLUDES(scheduler_mutex);

  /// Whether the stream's next command can run now: the stream is not parked on an unfinished
  /// fence.
  bool is_runnable(const StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);

  /// Called by a producer that published a command and then saw the stream idle: finds an owner for
  /// it.
  void schedule(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);
  /// Like schedule(), for a producer that runs the command itself. True: the caller owns the
  /// stream.
  bool take_idle(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);
  /// Called by the owner when the stream has nothing to run. False: a command has arrived, and the
  /// caller still owns the stream.
  bool go_idle(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);
  /// Called by the owner between two commands: gives up the stream.
  void release(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);
  /// Called by the owner: hands the stream to a host that wants it. False: no host wants it any
  /// more.
  bool hand_over(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);
  /// Called by an engine for computing that owns the stream: leaves it until `end` to a host that
  /// is expected to wait for it. Returns at once, or early, if the engine has something else to do.
  /// False: a host has taken the stream.
  bool reserve_for_host(StreamImpl& stream, HostExpectation::Clock::time_point end)
      OPENREG_EXCLUDES(scheduler_mutex);
  /// Called by the owner, with the fence's mutex held: the stream waits for the fence.
  void set_parked(StreamImpl& stream, Fence& fence) OPENREG_EXCLUDES(scheduler_mutex);
  /// Called when the fence has fired, without its mutex. If `owned` is given, streams that no host
  /// waits for are moved to it, and the caller owns and runs them.
  void unpark(StreamList streams, StreamList* owned = nullptr) OPENREG_EXCLUDES(scheduler_mutex);

  /// How far a waiting host got along the chain of fences that begins at its goal's stream.
  struct Claim {
    enum Result {
      kOwned,       // the caller owns `stream` and runs it
      kRegistered,  // another thread runs `stream`; the waiter is among its helpers
      kOutside,     // the chain ends at something outside the device
      kNothing,     // `stream` has nothing left to run
    };
    Result result;
    StreamImpl* stream;
    FenceRef blocking_fence;  // the last fence on the way; null: `stream` is where the chain begins
  };
  /// Throws Error if the chain leads to a stream that the calling thread is running: a command
  /// waits for its own stream through others. This is detected only if those streams are already
  /// parked.
  Claim claim(StreamImpl& begin, Waiter& waiter) OPENREG_EXCLUDES(scheduler_mutex);
  /// Must be called after claim() has returned kRegistered. True: the stream has been handed over
  /// in the meantime, and the caller owns it.
  bool withdraw(StreamImpl& stream, Waiter& waiter) OPENREG_EXCLUDES(scheduler_mutex);

  /// Chooses among the streams in the run queues. `choose` may return null, and takes leaf locks
  /// only. The caller owns and runs the stream that is returned.
  StreamImpl* take_queued(
      const std::function<StreamImpl*(const std::vector<StreamImpl*>& queued)>& choose)
      OPENREG_EXCLUDES(scheduler_mutex);

  /// Called when a thread begins to run commands. Does not return once the scheduler has been
  /// stopped.
  void begin_running() noexcept;
  void end_running() noexcept OPENREG_EXCLUDES(scheduler_mutex);

  /// Called around an engine's sleep inside a command: another engine does its work during that
  /// time.
  void block_engine(EngineKind kind) OPENREG_EXCLUDES(scheduler_mutex);
  void unblock_engine(EngineKind kind) OPENREG_EXCLUDES(scheduler_mutex);

  /// Returns the next stream for an engine, which sleeps until there is one. nullptr: there is one
  /// engine too many, and this one ends. `arriving`: it is the engine's first call.
  StreamImpl* next_stream(EngineKind kind, bool arriving) OPENREG_EXCLUDES(scheduler_mutex);

 private:
  static constexpr std::size_t kKinds = 2;

  /// The engines of one kind, and the streams whose next command is for them.
  struct Engines {
    explicit Engines(EngineKind kind, int wanted) : kind(kind), wanted(wanted) {}

    const EngineKind kind;
    const int wanted;
    std::condition_variable work;
    StreamList run_queues[2] OPENREG_GUARDED_BY(scheduler_mutex);  // high priority, normal
    int threads OPENREG_GUARDED_BY(scheduler_mutex) = 0;           // starting ones included
    int blocked OPENREG_GUARDED_BY(scheduler_mutex) = 0;   // of these, asleep inside a command
    int sleeping OPENREG_GUARDED_BY(scheduler_mutex) = 0;  // of these, asleep without work
    int notified OPENREG_GUARDED_BY(scheduler_mutex) = 0;  // of the sleeping ones, woken
    // Those about to look at the run queues: spinning, woken, starting.
    int visitors OPENREG_GUARDED_BY(scheduler_mutex) = 0;

    // Hints, written with the mutex held.
    alignas(64) std::atomic<int> ready{0};
    std::atomic<int> ready_high{0};
  };

  /// Holds the mutex; after releasing it, wakes or starts the engines that are needed.
  class OPENREG_SCOPED_CAPABILITY Transition {
   public:
    explicit Transition(Scheduler& scheduler) OPENREG_ACQUIRE(scheduler_mutex)
        : scheduler_(scheduler) {
      scheduler_mutex.lock();
    }
    ~Transition() OPENREG_RELEASE();
    Transition(const Transition&) = delete;
    Transition& operator=(const Transition&) = delete;

    struct Called {
      int to_notify = 0;
      int to_start = 0;
    };
    Called called[kKinds];

   private:
    Scheduler& scheduler_;
  };

  Scheduler();

  static std::size_t index(EngineKind kind) noexcept { return static_cast<std::size_t>(kind); }
  Engines& of(EngineKind kind) noexcept { return engines_[index(kind)]; }
  const Engines& of(EngineKind kind) const noexcept { return engines_[index(kind)]; }

  /// The first stream on the chain of fences that begins at `begin` which is not parked on an
  /// unfinished fence, and the last fence on the way; no stream: the chain ends outside the device.
  struct Link {
    StreamImpl* stream;
    Fence* blocking_fence;
  };
  static Link end_of_chain(StreamImpl& begin) OPENREG_REQUIRES(scheduler_mutex);
  void make_runnable(StreamImpl& stream, Transition& transition) OPENREG_REQUIRES(scheduler_mutex);
  bool try_idle(StreamImpl& stream) OPENREG_REQUIRES(scheduler_mutex);
  void wake_helpers(StreamImpl& stream) OPENREG_REQUIRES(scheduler_mutex);
  void make_ready(StreamImpl& stream) OPENREG_REQUIRES(scheduler_mutex);
  void dequeue(StreamImpl& stream) OPENREG_REQUIRES(scheduler_mutex);
  StreamImpl* pop(Engines& engines) OPENREG_REQUIRES(scheduler_mutex);
  void call_engine(Engines& engines, Transition& transition) OPENREG_REQUIRES(scheduler_mutex);

  void start_engine(Engines& engines) OPENREG_EXCLUDES(scheduler_mutex);

  std::condition_variable quiet_;
  Engines engines_[kKinds];

  alignas(64) std::atomic<bool> stopping_{false};  // written with the mutex held
  std::atomic<bool> holding_{false};               // written with the mutex held

  alignas(64) std::atomic<int> running_{0};  // threads that run commands
};

}  // namespace openreg
