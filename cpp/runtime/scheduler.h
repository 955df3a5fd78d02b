#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runtime/fence.h"
#include "runtime/intrusive_list.h"
#include "runtime/strand.h"
#include "runtime/waiter.h"

namespace openreg {

/// Who owns which stream, and how many engines there are. One per process, never destroyed.
/// See Note [Streams as strands] in scheduler.cpp and docs/architecture.md.
///
/// Note [Lock order] of the runtime, outer to inner:
///   Fence's mutex > Scheduler's mutex
///   Fence's mutex > Strand's failure mutex
/// All others are leaves: nothing is locked and nobody waited for while one of them is held. No
/// callback, no kernel, and no destructor of what a kernel threw runs under any lock.
class Scheduler {
 public:
  static Scheduler& get();

  /// Starts the first engine of each kind; more follow when there is work for them. Throws Error if
  /// the system refuses a thread.
  void start();
  /// From now on no command begins. With `wait`, returns when those that run have ended, but for
  /// those that may block.
  void stop(bool wait) noexcept;

  // Hints for whoever runs a stream; they may be a moment old.
  bool has_ready(EngineKind kind) const noexcept {
    return of(kind).ready.load(std::memory_order_relaxed) > 0;
  }
  bool has_ready_high(EngineKind kind) const noexcept {
    return of(kind).ready_high.load(std::memory_order_relaxed) > 0;
  }
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

  /// Nothing has to happen elsewhere before the stream's next command runs.
  bool moves(const Strand& strand);

  /// A producer published a command and then saw the stream idle.
  void schedule(Strand& strand);
  /// Owner: the stream has nothing to run. False: something has come, the caller owns it still.
  bool go_idle(Strand& strand);
  /// Owner, between two commands: gives the stream back.
  void release(Strand& strand);
  /// Owner: gives the stream to a host that wants it. False: there is none any more.
  bool hand_over(Strand& strand);
  /// Owner, with the fence's mutex: the stream waits for the fence.
  void set_parked(Strand& strand, Fence& fence);
  /// The fence has fired. Without its mutex.
  void unpark(IntrusiveList<Strand, &Strand::link> strands);

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
  Claim claim(Strand& begin, Waiter& waiter);
  /// After kRegistered, always. True: the stream was handed over meanwhile, the caller owns it.
  bool withdraw(Strand& strand, Waiter& waiter);

  /// A thread begins to run commands. Does not return when the scheduler stops.
  void begin_running() noexcept;
  void end_running() noexcept;

  /// Around an engine's sleep inside a command: somebody else has to do its work.
  void block_engine(EngineKind kind);
  void unblock_engine(EngineKind kind);

  /// The next stream for an engine, which sleeps till there is one. nullptr: there is one engine
  /// too many, this one ends. `arriving`: its first call.
  Strand* next_strand(EngineKind kind, bool arriving);

 private:
  using RunQueue = IntrusiveList<Strand, &Strand::link>;
  static constexpr std::size_t kKinds = 2;

  /// The engines of one kind, and the streams whose next command is for them.
  struct Engines {
    explicit Engines(EngineKind kind, int wanted) : kind(kind), wanted(wanted) {}

    const EngineKind kind;
    const int wanted;
    std::condition_variable work;
    RunQueue run_queues[2];  // high priority, normal
    int threads = 0;         // starting ones included
    int blocked = 0;         // of these, those that sleep inside a command
    int sleeping = 0;        // those that sleep for want of work
    int notified = 0;        // of these, the ones that have been woken
    int visitors = 0;        // those about to look at the run queues: spinning, woken, starting

    // Hints, written with mutex_ held.
    alignas(64) std::atomic<int> ready{0};
    std::atomic<int> ready_high{0};
  };

  /// Holds the mutex; calls the engines that are needed after giving it up.
  class Transition {
   public:
    explicit Transition(Scheduler& scheduler) : scheduler_(scheduler), lock_(scheduler.mutex_) {}
    ~Transition();

    struct Called {
      int to_notify = 0;
      int to_start = 0;
    };
    Called called[kKinds];

   private:
    Scheduler& scheduler_;
    std::unique_lock<std::mutex> lock_;
  };

  Scheduler();

  static std::size_t index(EngineKind kind) noexcept { return static_cast<std::size_t>(kind); }
  Engines& of(EngineKind kind) noexcept { return engines_[index(kind)]; }
  const Engines& of(EngineKind kind) const noexcept { return engines_[index(kind)]; }

  // With mutex_ held:
  void make_runnable(Strand& strand, Transition& transition);
  bool try_idle(Strand& strand);
  void wake_helpers(Strand& strand);
  void enqueue(Strand& strand);
  void dequeue(Strand& strand);
  Strand* pop(Engines& engines);
  void call_engine(Engines& engines, Transition& transition);

  void start_engine(Engines& engines);

  std::mutex mutex_;
  std::condition_variable quiet_;
  Engines engines_[kKinds];

  alignas(64) std::atomic<bool> stopping_{false};  // written with mutex_ held

  alignas(64) std::atomic<int> running_{0};  // threads that run commands
};

}  // namespace openreg
