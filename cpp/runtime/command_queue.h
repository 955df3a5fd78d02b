#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/launch_site.h"
#include "base/mutex.h"
#include "runtime/command.h"

namespace openreg {

class Fence;

/// The header of a command in a queue. Its arguments follow, or, if they are many, a pointer to
/// them.
struct alignas(16) Record {
  enum Kind : std::uint32_t { kRun, kRecord, kWait, kGraph };

  // kRun: const Kernel; kRecord, kWait: Fence (owns a reference); kGraph: GraphRun (owns it)
  void* target = nullptr;
  Kind kind = kRun;
  Cost cost{};             // kRun, kGraph
  Fence* fence = nullptr;  // kRun: completed for the caller that waits for this command (owns a
                           // reference), or null
  std::size_t bytes = 0;   // of the arguments
  std::uint32_t traced_as = 0;  // its submission's number in a trace; 0: not traced
  LaunchSite site = 0;
  bool computes = true;  // kGraph: has a node

  std::span<const std::byte> arguments() const noexcept;
};

/// A block of places for records. The blocks of a queue are linked, so a queue has no fixed size.
/// Consecutive records are not adjacent: when the runner's core reads one, it also prefetches the
/// cache lines that follow, and would take them from the producer that is writing them.
struct alignas(64) Chunk {
  static constexpr std::size_t kPlaceBytes = 1024;
  static constexpr std::size_t kPlaces = 16;  // two chunks stay in the L2 cache

  std::byte* place(std::size_t i) noexcept {
    constexpr std::size_t kStride = 5;
    return places[i * kStride % kPlaces];
  }

  Chunk* next = nullptr;  // set before a record in it is published
  alignas(64) std::byte places[kPlaces][kPlaceBytes];
};

/// Returns a drained chunk from the runner to the producer, so that two chunks circulate and stay
/// in the cache.
class SpareChunk {
 public:
  void give(Chunk* chunk) noexcept { delete chunk_.exchange(chunk, std::memory_order_acq_rel); }
  Chunk* take() noexcept { return chunk_.exchange(nullptr, std::memory_order_acquire); }

 private:
  std::atomic<Chunk*> chunk_{nullptr};
};

/// The producers' end of a queue, used by one thread at a time.
class QueueWriter {
 public:
  explicit QueueWriter(Chunk* first) noexcept : chunk_(first) {}

  /// Appends a copy of `record`, and of `arguments` after it. Throws std::bad_alloc; then the queue
  /// is unchanged.
  void push(const Record& record, std::span<const std::byte> arguments, SpareChunk& spare);

 private:
  Chunk* chunk_;
  std::size_t used_ = 0;  // places
};

/// The runner's end of a queue, used by one thread at a time, and only for published records.
class QueueReader {
 public:
  explicit QueueReader(Chunk* first) noexcept : chunk_(first) {}

  const Record& front(SpareChunk& spare) noexcept;
  const Record& behind_front(std::size_t distance) const noexcept;
  void pop(const Record& front) noexcept;

 private:
  Chunk* chunk_;
  std::size_t used_ = 0;
};

/// How many commands may be queued before an enqueue waits for room: of most streams, and of those
/// whose callers must never wait.
inline constexpr std::uint64_t kQueueLimit = 1024;
inline constexpr std::uint64_t kNoQueueLimit = std::uint64_t{1} << 62;

/// A stream's commands, in order, with their number and their estimated cost. Any thread may push
/// one; the stream's runner takes them. Each group of members has its own cache lines, so producers
/// and the runner do not share one.
class CommandQueue {
 public:
  /// `limit`: how many commands may be queued before an ordinary producer waits.
  explicit CommandQueue(std::uint64_t limit) : CommandQueue(new Chunk, limit) {}

  // Producers, which hold the mutex:
  alignas(64) Mutex mutex;
  /// Publishes a copy of `record`, and of `arguments` after it, and returns its position, which
  /// `completes`, if given, gets too. Throws std::bad_alloc; then the queue is unchanged.
  std::uint64_t push(const Record& record, std::span<const std::byte> arguments, Fence* completes)
      OPENREG_REQUIRES(mutex);
  /// Whether an ordinary producer has to wait. push() does not check.
  bool full() OPENREG_REQUIRES(mutex);
  /// Whether the stream has been destroyed. push() does not check.
  bool closed() const OPENREG_REQUIRES(mutex) { return closed_; }
  /// Closes or reopens the queue. Returns whether it was closed before.
  bool set_closed(bool closed) OPENREG_REQUIRES(mutex) { return std::exchange(closed_, closed); }

  // The runner:
  /// Whether a command is published that has not run.
  bool has_work() noexcept {
    const auto done = head_.load(std::memory_order_relaxed);
    if (done == tail_seen_) tail_seen_ = tail_.load(std::memory_order_acquire);
    return done != tail_seen_;
  }
  /// The next command; one is published. Called also under the scheduler's mutex, by the thread
  /// that is finding a runner.
  const Record& front() noexcept { return reader_.front(spare_); }
  /// The command that comes `distance` after the next one. Null: none is published.
  const Record* behind_front(std::size_t distance) noexcept {
    const auto done = head_.load(std::memory_order_relaxed);
    if (tail_seen_ - done <= distance) tail_seen_ = tail_.load(std::memory_order_acquire);
    return tail_seen_ - done > distance ? &reader_.behind_front(distance) : nullptr;
  }
  /// Removes the command at the front, which has completed.
  void pop(const Record& front) noexcept;
  /// Whether a command is published. Called after the runner has stored that it gives up; see Note
  /// [Who runs a stream].
  bool published_more() const noexcept {
    return tail_.load(std::memory_order_seq_cst) != head_.load(std::memory_order_relaxed);
  }

  // Any thread:
  /// Number of commands published.
  std::uint64_t published() const noexcept { return tail_.load(std::memory_order_acquire); }
  /// Number of commands completed. Their results may be read.
  std::uint64_t completed() const noexcept { return head_.load(std::memory_order_acquire); }
  /// Whether all published commands have completed. The number of these is read first, so that only
  /// commands that were published by then count.
  bool drained() const noexcept {
    const auto published = this->published();
    return completed() >= published;
  }
  /// The number of completed commands at which half of the queue will be free, so that a producer
  /// can then enqueue for a while.
  std::uint64_t completed_when_half_free() const noexcept {
    return tail_.load(std::memory_order_relaxed) - limit_ / 2;
  }
  /// Sets the limit, and returns what it was before. No other thread uses the queue.
  std::uint64_t set_limit(std::uint64_t limit) noexcept { return std::exchange(limit_, limit); }
  /// Estimated time of one thread for all that was ever published.
  std::chrono::nanoseconds cost_published() const noexcept {
    return std::chrono::nanoseconds(cost_published_.load(std::memory_order_relaxed));
  }
  /// Estimated time of one thread for all that is published and has not completed.
  std::chrono::nanoseconds cost_left() const noexcept;

 private:
  CommandQueue(Chunk* first, std::uint64_t limit) noexcept
      : writer_(first), limit_(limit), reader_(first) {}

  QueueWriter writer_ OPENREG_GUARDED_BY(mutex);
  std::uint64_t head_seen_ OPENREG_GUARDED_BY(mutex) = 0;
  bool closed_ OPENREG_GUARDED_BY(mutex) = false;
  std::uint64_t limit_;

  // Written by producers, with the mutex held; read by the runner.
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> cost_published_{0};  // in nanoseconds

  // The runner's.
  alignas(64) std::atomic<std::uint64_t> head_{0};
  QueueReader reader_;
  std::uint64_t tail_seen_ = 0;
  std::atomic<std::uint64_t> cost_completed_{0};  // in nanoseconds

  alignas(64) SpareChunk spare_;
};

}  // namespace openreg
