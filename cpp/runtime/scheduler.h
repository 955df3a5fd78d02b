#pragma once

#include <atomic>
#include <condition_variable>

#include "runtime/fence.h"
#include "runtime/intrusive_list.h"
#include "runtime/mutex.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/strand.h"
#include "runtime/waiter.h"

namespace openreg {

/// Who owns which stream, and how many engines there are. One per process, never destroyed.
/// See Note [Streams as strands] in scheduler.cpp and docs/architecture.md.
///
/// Note [Lock order] of the runtime, outer to inner:
///   Fence's mutex > Scheduler's mutex
///   Fence's mutex > Strand's failure mutex
///   GraphExec's mutex > all that a submission takes
/// All others are leaves: nothing is locked and nobody waited for while one of them is held. No
/// callback, no kernel, and no destructor of what a kernel threw runs under any lock. Clang checks
/// what the annotations say of it (runtime/mutex.h).
class Scheduler {
 public:
  static Scheduler& get();

  /// Starts the first engine of each kind; more follow when there is work for them. Throws Error if
  /// the system refuses a thread.
  void start() OPENREG_EXCLUDES(scheduler_mutex);
  /// From now on no command begins. With `wait`, returns when those that run have ended, but for
  /// those that may block.
  void stop(bool wait) noexcept OPENREG_EXCLUDES(scheduler_mutex);

  // Hints for whoever runs a stream; they may be a moment old.
  bool has_ready(EngineKind kind) const noexcept {
    return of(kind).ready.load(std::memory_order_relaxed) > 0;
  }
  bool has_ready_high(EngineKind kind) const noexcept {
    return of(kind).ready_high.load(std::memory_order_relaxed) > 0;
  }
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

  /// Nothing has to happen elsewhere before the stream's next command runs.
  bool moves(const Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);

  /// A producer published a command and then saw the stream idle: gives the stream away.
  void schedule(Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);
  /// The same, to run the command itself. True: the caller owns the stream.
  bool take_idle(Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);
  /// Owner: the stream has nothing to run. False: something has come, the caller owns it still.
  bool go_idle(Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);
  /// Owner, between two commands: gives the stream back.
  void release(Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);
  /// Owner: gives the stream to a host that wants it. False: there is none any more.
  bool hand_over(Strand& strand) OPENREG_EXCLUDES(scheduler_mutex);
  /// Owner, with the fence's mutex: the stream waits for the fence.
  void set_parked(Strand& strand, Fence& fence) OPENREG_EXCLUDES(scheduler_mutex);
  /// The fence has fired. Without its mutex. With `owned`, streams that no host waits for go there,
  /// and are the caller's to run.
  void unpark(IntrusiveList<Strand, &Strand::link> strands,
              IntrusiveList<Strand, &Strand::link>* owned = nullptr)
      OPENREG_EXCLUDES(scheduler_mutex);

  /// Where a host that waits got to, along the chain of fences that begins at its goal's stream.
  struct Claim {
    enum Result {
      kOwned,       // `strand` is the caller's to run
      kRegistered,  // somebody else runs `strand`; the waiter is among its helpers
      kOutside,     // the chain ends at something outside of the device
      kNothing,     // `strand` has nothing left to run: what it was wanted for has happened
    };
    Result result;
    Strand* strand;
    FenceRef hop;  // the last fence on the way; null: `strand` is where the chain begins
  };
  /// Throws Error if the chain leads to a stream that the calling thread is running: a command
  /// waits for its own stream by way of others. It is seen only if they are parked by then.
  Claim claim(Strand& begin, Waiter& waiter) OPENREG_EXCLUDES(scheduler_mutex);
  /// After kRegistered, always. True: the stream was handed over meanwhile, the caller owns it.
  bool withdraw(Strand& strand, Waiter& waiter) OPENREG_EXCLUDES(scheduler_mutex);

  /// A thread begins to run commands. Does not return when the scheduler stops.
  void begin_running() noexcept;
  void end_running() noexcept OPENREG_EXCLUDES(scheduler_mutex);

  /// Around an engine's sleep inside a command: somebody else has to do its work.
  void block_engine(EngineKind kind) OPENREG_EXCLUDES(scheduler_mutex);
  void unblock_engine(EngineKind kind) OPENREG_EXCLUDES(scheduler_mutex);

  /// The next stream for an engine, which sleeps till there is one. nullptr: there is one engine
  /// too many, this one ends. `arriving`: its first call.
  Strand* next_strand(EngineKind kind, bool arriving) OPENREG_EXCLUDES(scheduler_mutex);

 private:
  using RunQueue = IntrusiveList<Strand, &Strand::link>;
  static constexpr std::size_t kKinds = 2;

  /// The engines of one kind, and the streams whose next command is for them.
  struct Engines {
    explicit Engines(EngineKind kind, int wanted) : kind(kind), wanted(wanted) {}

    const EngineKind kind;
    const int wanted;
    std::condition_variable work;
    RunQueue run_queues[2] OPENREG_GUARDED_BY(scheduler_mutex);  // high priority, normal
    int threads OPENREG_GUARDED_BY(scheduler_mutex) = 0;         // starting ones included
    int blocked OPENREG_GUARDED_BY(scheduler_mutex) = 0;   // of these, asleep inside a command
    int sleeping OPENREG_GUARDED_BY(scheduler_mutex) = 0;  // of these, asleep for want of work
    int notified OPENREG_GUARDED_BY(scheduler_mutex) = 0;  // of the sleeping, those woken
    // Those about to look at the run queues: spinning, woken, starting.
    int visitors OPENREG_GUARDED_BY(scheduler_mutex) = 0;

    // Hints, written with the mutex held.
    alignas(64) std::atomic<int> ready{0};
    std::atomic<int> ready_high{0};
  };

  /// Holds the mutex; calls the engines that are needed after giving it up.
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

  void make_runnable(Strand& strand, Transition& transition) OPENREG_REQUIRES(scheduler_mutex);
  bool try_idle(Strand& strand) OPENREG_REQUIRES(scheduler_mutex);
  void wake_helpers(Strand& strand) OPENREG_REQUIRES(scheduler_mutex);
  void enqueue(Strand& strand) OPENREG_REQUIRES(scheduler_mutex);
  void dequeue(Strand& strand) OPENREG_REQUIRES(scheduler_mutex);
  Strand* pop(Engines& engines) OPENREG_REQUIRES(scheduler_mutex);
  void call_engine(Engines& engines, Transition& transition) OPENREG_REQUIRES(scheduler_mutex);

  void start_engine(Engines& engines) OPENREG_EXCLUDES(scheduler_mutex);

  std::condition_variable quiet_;
  Engines engines_[kKinds];

  alignas(64) std::atomic<bool> stopping_{false};  // written with the mutex held

  alignas(64) std::atomic<int> running_{0};  // threads that run commands
};

}  // namespace openreg
