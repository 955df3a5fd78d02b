#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/command.h"
#include "runtime/launch_site.h"

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

/// The producers' end, used by one thread at a time.
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

/// The runner's end, used by one thread at a time, and only for published records.
class QueueReader {
 public:
  explicit QueueReader(Chunk* first) noexcept : chunk_(first) {}

  const Record& front(SpareChunk& spare) noexcept;
  void pop(const Record& front) noexcept;

 private:
  Chunk* chunk_;
  std::size_t used_ = 0;
};

}  // namespace openreg
