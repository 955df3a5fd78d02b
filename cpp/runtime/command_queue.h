#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/command.h"

namespace openreg {

class Fence;

/// The header of a command in a queue; its arguments follow.
struct alignas(16) Record {
  enum Kind : std::uint32_t { kRun, kRecord, kWait, kJump };

  void* target =
      nullptr;  // kRun: const Kernel; kRecord, kWait: Fence (owns a reference); kJump: next Chunk
  Kind kind = kRun;
  Work work = 0;  // kRun
  Fence* fence =
      nullptr;  // kRun: of the caller that waits for this command (owns a reference), or null
  std::size_t bytes = 0;  // of the arguments; a jump ends before
  // For tracing:
  std::uint64_t correlation = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  std::span<const std::byte> arguments() const noexcept {
    return {reinterpret_cast<const std::byte*>(this + 1), bytes};
  }
};

/// A block of records. Blocks are linked by jumps, so a queue has no end that it could run into.
struct alignas(64) Chunk {
  static constexpr std::size_t kBytes = std::size_t{16} << 10;  // two of them stay in the L2 cache

  static Chunk* create(std::size_t capacity);  // throws std::bad_alloc
  static void destroy(Chunk* chunk) noexcept;

  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }

  std::size_t capacity;
};

/// Where the runner leaves a drained chunk for the producer: two chunks circulate and stay warm.
class SpareChunk {
 public:
  void give(Chunk* chunk) noexcept;
  Chunk* take() noexcept { return chunk_.exchange(nullptr, std::memory_order_acquire); }

 private:
  std::atomic<Chunk*> chunk_{nullptr};
};

/// The producers' end; one at a time.
class QueueWriter {
 public:
  explicit QueueWriter(Chunk* first) noexcept : chunk_(first) {}

  /// Appends a copy of `record`, and of `arguments` behind it. Throws std::bad_alloc; then the
  /// queue is unchanged.
  void push(const Record& record, std::span<const std::byte> arguments, SpareChunk& spare);

 private:
  Chunk* chunk_;
  std::size_t offset_ = 0;
};

/// The runner's end; one at a time, and only for records that were published.
class QueueReader {
 public:
  explicit QueueReader(Chunk* first) noexcept : chunk_(first) {}

  const Record& front(SpareChunk& spare) noexcept;
  void pop(const Record& front) noexcept;

 private:
  Chunk* chunk_;
  std::size_t offset_ = 0;
};

}  // namespace openreg
