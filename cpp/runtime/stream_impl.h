#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/command_queue.h"
#include "runtime/failure.h"
#include "runtime/intrusive_list.h"
#include "runtime/launch_site.h"
#include "runtime/mutex.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/stream.h"
#include "runtime/waiter.h"

namespace openreg {

class Fence;
class FenceRef;
class GraphRun;

/// The implementation of a Stream: its queue, its progress and its owner.
///
/// A stream has at most one owner: the run queue (kQueued), one thread (kRunning) or one fence
/// (kParked). The state is written only under the scheduler's mutex; producers read it without.
/// Each group of members has its own cache lines, so producers and the runner do not share one.
struct StreamImpl final : Stream {
  enum class State : std::uint8_t { kIdle, kQueued, kRunning, kParked };

  static constexpr std::uint64_t kLimit = 1024;  // commands in the queue of an ordinary producer

  StreamImpl(int device, std::int64_t id, Priority priority);  // throws std::bad_alloc

  static StreamImpl& of(Stream& stream) noexcept { return static_cast<StreamImpl&>(stream); }
  static const StreamImpl& of(const Stream& stream) noexcept {
    return static_cast<const StreamImpl&>(stream);
  }

  /// The ways to enqueue. They throw std::bad_alloc and, with Backpressure::kWait, Error for a
  /// destroyed stream and what wait_for() throws while there is no room; then nothing was
  /// enqueued. Marks and graphs ignore the backpressure. A command with a fence completes it;
  /// its failure goes to the fence and does not poison the stream, unless the fence was abandoned.
  /// A mark is a record that does not wait for room and that no trace shows.
  void enqueue_run(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost,
                   LaunchSite site, const FenceRef& fence,
                   Backpressure backpressure = Backpressure::kWait);
  void enqueue_record(const FenceRef& fence);
  void enqueue_mark(const FenceRef& fence);
  void enqueue_wait(const FenceRef& fence, Backpressure backpressure);
  void enqueue_graph(std::unique_ptr<GraphRun> run, Cost cost);

  /// Returns when there is room. Throws as an enqueue that waits for room does.
  void make_room_if_full() OPENREG_EXCLUDES(enqueue_mutex);

  /// Whether all published commands have run. `tail` is read first, so that only commands that were
  /// published by then count.
  bool drained() const noexcept {
    const auto published = tail.load(std::memory_order_acquire);
    return head.load(std::memory_order_acquire) >= published;
  }

  /// Estimated time of one thread for all that is published and has not run.
  std::chrono::nanoseconds cost_left() const noexcept;
  /// Called by the runner: a command of this cost has completed.
  void note_done(Cost cost) noexcept {
    cost_done.store(cost_done.load(std::memory_order_relaxed) + cost.nanoseconds,
                    std::memory_order_relaxed);
  }

  /// The kind of engine for the next command, if it matters. Called if something is published, by
  /// the owner or, under the scheduler's mutex, by the thread that is finding one.
  std::optional<EngineKind> next_engine() noexcept;

  /// Estimated time of what was published since note_wait(); a hint for hosts.
  std::chrono::nanoseconds cost_since_last_wait() const noexcept {
    return std::chrono::nanoseconds(cost_published.load(std::memory_order_relaxed) -
                                    cost_at_last_wait.load(std::memory_order_relaxed));
  }
  void note_wait() noexcept {
    cost_at_last_wait.store(cost_published.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
  }

  /// Called by the owner if something is published: whether the next command is brief
  /// (brief_run.h).
  bool next_is_brief() noexcept { return is_brief(reader.front(spare)); }

  /// Poisons the stream because a command of it threw `error`: the commands that have not begun are
  /// skipped. Called by the runner, or by a host that has abandoned the fence of such a command.
  void poison(const Kernel& kernel, LaunchSite site, std::exception_ptr error);

  // Producers.
  alignas(64) Mutex enqueue_mutex;
  QueueWriter writer OPENREG_GUARDED_BY(enqueue_mutex);
  std::uint64_t head_seen OPENREG_GUARDED_BY(enqueue_mutex) = 0;
  bool closed OPENREG_GUARDED_BY(enqueue_mutex) = false;
  std::uint64_t limit = kLimit;  // lower in tests
  std::atomic<CaptureId> captured_by{0};

  // Written by producers, under enqueue_mutex; read by the runner.
  alignas(64) std::atomic<std::uint64_t> tail{0};  // number of commands published
  std::atomic<std::uint64_t> cost_published{0};    // in nanoseconds

  // The runner's.
  alignas(64) std::atomic<std::uint64_t> head{0};  // number of commands completed
  QueueReader reader;
  std::uint64_t tail_seen = 0;
  std::atomic<std::uint64_t> cost_done{0};  // in nanoseconds
  std::int64_t wait_began = 0;              // of the wait at the head, if it is traced
  FailureSlot failure;                      // of the first command that failed

  // Read by all; written at transitions under the scheduler's mutex, except for `spare` and
  // `cost_at_last_wait`.
  alignas(64) std::atomic<State> state{State::kIdle};
  std::atomic<int> wanted{0};                       // number of helpers: a hint for the runner
  std::atomic<std::uint64_t> cost_at_last_wait{0};  // in nanoseconds; written by hosts
  const Priority level;
  const int device_index;
  const std::int64_t number;
  // The kind of engine in whose run queue it is, or was last.
  EngineKind queued_for OPENREG_GUARDED_BY(scheduler_mutex) = EngineKind::kCompute;
  ListLink<StreamImpl> link;  // in a run queue, or (under the fence's mutex) in its fence's list
  // Stays alive, because the wait at the queue's head owns a reference.
  Fence* parked_on OPENREG_GUARDED_BY(scheduler_mutex) = nullptr;
  // Hosts that want to run the stream.
  IntrusiveList<Waiter, &Waiter::as_helper> helpers OPENREG_GUARDED_BY(scheduler_mutex);
  SpareChunk spare;

 private:
  StreamImpl(int device, std::int64_t id, Priority priority, Chunk* first);

  // Each enqueue calls both. In between, ownership of what the record refers to passes to the
  // queue: if publish() throws, the caller still has it; find_runner() may run the command, and
  // throw if that ends the thread.
  void publish(const Record& record, std::span<const std::byte> arguments, Fence* completes,
               Backpressure backpressure) OPENREG_EXCLUDES(enqueue_mutex);
  void find_runner(const Record& record, Backpressure backpressure);
  static bool is_brief(const Record& record) noexcept;
  bool has_room() OPENREG_REQUIRES(enqueue_mutex);
  void make_room() OPENREG_EXCLUDES(enqueue_mutex);
};

/// A run queue, or the streams that are parked on a fence.
using StreamList = IntrusiveList<StreamImpl, &StreamImpl::link>;

}  // namespace openreg
