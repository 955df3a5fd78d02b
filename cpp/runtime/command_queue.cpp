#include "runtime/command_queue.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace openreg {

namespace {

constexpr std::size_t kJumpBytes = offsetof(Record, bytes);

constexpr std::size_t record_bytes(std::size_t arguments) {
  constexpr std::size_t kAlignment = alignof(Record);
  return sizeof(Record) + (arguments + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Chunk* Chunk::create(std::size_t capacity) {
  void* const memory = ::operator new (sizeof(Chunk) + capacity, std::align_val_t{alignof(Chunk)});
  auto* const chunk = new (memory) Chunk;
  chunk->capacity = capacity;
  return chunk;
}

void Chunk::destroy(Chunk* chunk) noexcept {
  ::operator delete (chunk, std::align_val_t{alignof(Chunk)});
}

void SpareChunk::give(Chunk* chunk) noexcept {
  // A chunk made for one large command is not worth keeping.
  if (chunk->capacity == Chunk::kBytes) chunk = chunk_.exchange(chunk, std::memory_order_acq_rel);
  if (chunk) Chunk::destroy(chunk);
}

void QueueWriter::push(const Record& record, std::span<const std::byte> arguments,
                       SpareChunk& spare) {
  const std::size_t bytes = record_bytes(arguments.size());
  // Every chunk keeps room for the jump out of it.
  if (offset_ + bytes + kJumpBytes > chunk_->capacity) {
    const std::size_t capacity = std::max(Chunk::kBytes, bytes + kJumpBytes);
    Chunk* next = capacity == Chunk::kBytes ? spare.take() : nullptr;
    if (!next) next = Chunk::create(capacity);
    auto* const jump = reinterpret_cast<Record*>(chunk_->data() + offset_);
    jump->target = next;
    jump->kind = Record::kJump;
    chunk_ = next;
    offset_ = 0;
  }
  std::byte* const place = chunk_->data() + offset_;
  new (place) Record(record);
  reinterpret_cast<Record*>(place)->bytes = arguments.size();
  if (!arguments.empty()) std::memcpy(place + sizeof(Record), arguments.data(), arguments.size());
  offset_ += bytes;
}

const Record& QueueReader::front(SpareChunk& spare) noexcept {
  auto* record = reinterpret_cast<const Record*>(chunk_->data() + offset_);
  if (record->kind == Record::kJump) {
    auto* const next = static_cast<Chunk*>(record->target);
    spare.give(chunk_);
    chunk_ = next;
    offset_ = 0;
    record = reinterpret_cast<const Record*>(chunk_->data());
  }
  return *record;
}

void QueueReader::pop(const Record& front) noexcept { offset_ += record_bytes(front.bytes); }

}  // namespace openreg
