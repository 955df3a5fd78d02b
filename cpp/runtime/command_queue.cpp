#include "runtime/command_queue.h"

#include <cstring>
#include <memory>
#include <new>

#include "base/processor.h"
#include "runtime/fence.h"

namespace openreg {

namespace {

constexpr std::size_t kMostInside = Chunk::kPlaceBytes - sizeof(Record);
constexpr std::align_val_t kAlignment{alignof(Record)};

// Where the arguments are, or the pointer to them.
std::byte* behind(Record& record) noexcept { return reinterpret_cast<std::byte*>(&record + 1); }

std::byte* outside(const Record& record) noexcept {
  std::byte* arguments = nullptr;
  std::memcpy(&arguments, behind(const_cast<Record&>(record)), sizeof(arguments));
  return arguments;
}

struct FreeArguments {
  void operator()(std::byte* arguments) const noexcept { ::operator delete(arguments, kAlignment); }
};
using Arguments = std::unique_ptr<std::byte, FreeArguments>;

/// Prefetches a record's place for writing, as far as most records reach: the runner's core had
/// these cache lines last, and the writes would wait for each of them.
void prefetch_place(const std::byte* place) noexcept {
  constexpr std::size_t kCacheLine = 64;
  constexpr std::size_t kBytes = 448;
  for (std::size_t at = 0; at < kBytes; at += kCacheLine) prefetch_for_write(place + at);
}

}  // namespace

std::span<const std::byte> Record::arguments() const noexcept {
  if (bytes > kMostInside) return {outside(*this), bytes};
  return {reinterpret_cast<const std::byte*>(this + 1), bytes};
}

void QueueWriter::push(const Record& record, std::span<const std::byte> arguments,
                       SpareChunk& spare) {
  const bool fits = arguments.size() <= kMostInside;
  Arguments block;
  if (!fits) block.reset(static_cast<std::byte*>(::operator new(arguments.size(), kAlignment)));
  if (used_ == Chunk::kPlaces) {
    Chunk* next = spare.take();
    if (!next) next = new Chunk;
    chunk_->next = next;
    chunk_ = next;
    used_ = 0;
  }
  auto& placed = *new (chunk_->place(used_)) Record(record);
  placed.bytes = arguments.size();
  auto* const place = fits ? behind(placed) : block.get();
  if (!arguments.empty()) std::memcpy(place, arguments.data(), arguments.size());
  if (!fits) {
    std::memcpy(behind(placed), &place, sizeof(place));
    static_cast<void>(block.release());
  }
  if (++used_ < Chunk::kPlaces) prefetch_place(chunk_->place(used_));
}

const Record& QueueReader::front(SpareChunk& spare) noexcept {
  if (used_ == Chunk::kPlaces) {
    Chunk* const next = chunk_->next;
    spare.give(chunk_);
    chunk_ = next;
    used_ = 0;
  }
  return *reinterpret_cast<const Record*>(chunk_->place(used_));
}

const Record& QueueReader::behind_front(std::size_t distance) const noexcept {
  Chunk* chunk = chunk_;
  std::size_t place = used_ + distance;
  for (; place >= Chunk::kPlaces; place -= Chunk::kPlaces) chunk = chunk->next;
  return *reinterpret_cast<const Record*>(chunk->place(place));
}

void QueueReader::pop(const Record& front) noexcept {
  if (front.bytes > kMostInside) FreeArguments()(outside(front));
  ++used_;
}

std::uint64_t CommandQueue::push(const Record& record, std::span<const std::byte> arguments,
                                 Fence* completes) {
  const auto position = tail_.load(std::memory_order_relaxed);
  writer_.push(record, arguments, spare_);
  if (completes) completes->set_position(position);
  cost_published_.store(cost_published_.load(std::memory_order_relaxed) + record.cost.nanoseconds,
                        std::memory_order_relaxed);
  tail_.store(position + 1, std::memory_order_seq_cst);  // see Note [Who runs a stream]
  return position;
}

bool CommandQueue::full() {
  const auto published = tail_.load(std::memory_order_relaxed);
  if (published - head_seen_ < limit_) return false;
  head_seen_ = head_.load(std::memory_order_acquire);
  return published - head_seen_ >= limit_;
}

void CommandQueue::pop(const Record& front) noexcept {
  cost_completed_.store(cost_completed_.load(std::memory_order_relaxed) + front.cost.nanoseconds,
                        std::memory_order_relaxed);
  reader_.pop(front);
  head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::chrono::nanoseconds CommandQueue::cost_left() const noexcept {
  const auto completed = cost_completed_.load(std::memory_order_relaxed);
  const auto published = cost_published_.load(std::memory_order_relaxed);
  return std::chrono::nanoseconds(published > completed ? published - completed : 0);
}

}  // namespace openreg
