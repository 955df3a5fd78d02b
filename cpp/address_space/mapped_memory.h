#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "address_space/memory_budget.h"

namespace openreg {

/// One bit for each piece of a range of addresses: whether memory is mapped there. One thread at a
/// time changes bits; any thread, and a signal handler, may read them.
class MappedPieces {
 public:
  explicit MappedPieces(std::size_t pieces)
      : words_((pieces + kBits - 1) / kBits),
        bits_(std::make_unique<std::atomic<std::uint64_t>[]>(words_)) {}

  bool contains(std::size_t piece) const noexcept {
    return (bits_[piece / kBits].load(std::memory_order_relaxed) >> (piece % kBits) & 1) != 0;
  }
  void set(std::size_t first, std::size_t count, bool mapped) noexcept {
    for (std::size_t piece = first; piece < first + count; ++piece) {
      const std::uint64_t bit = std::uint64_t{1} << (piece % kBits);
      auto& word = bits_[piece / kBits];
      mapped ? word.fetch_or(bit, std::memory_order_relaxed)
             : word.fetch_and(~bit, std::memory_order_relaxed);
    }
  }
  /// Calls f(piece) for each piece that is mapped.
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0; i < words_; ++i) {
      if (bits_[i].load(std::memory_order_relaxed) == 0) continue;
      for (std::size_t piece = i * kBits; piece < (i + 1) * kBits; ++piece) {
        if (contains(piece)) f(piece);
      }
    }
  }

 private:
  static constexpr std::size_t kBits = 64;

  const std::size_t words_;
  const std::unique_ptr<std::atomic<std::uint64_t>[]> bits_;
};

/// Keeps track of which parts of the apertures have memory, and whether the machine can hold more.
/// Thread safe.
class MappedMemory {
 public:
  /// Memory is mapped in pieces of this size.
  static constexpr std::size_t kPiece = std::size_t{2} << 20;

  /// `apertures`: where they begin; `bytes`: of all.
  MappedMemory(std::uintptr_t apertures, std::size_t bytes);

  /// The budget, which is asked before memory is mapped.
  MemoryBudget& budget() noexcept { return budget_; }

  /// Held while memory is mapped or unmapped, and that is noted, so that open() cannot come
  /// between. No memory of an aperture is used meanwhile.
  class Change {
   public:
    explicit Change(MappedMemory& memory) noexcept;
    ~Change() { memory_.changing_.clear(std::memory_order_release); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    MappedMemory& memory_;
  };
  /// Whose memory it is: only a device's own counts towards its capacity.
  enum class Owner : bool { kDevice, kOtherProcess };
  void note_mapped(const void* memory, std::size_t bytes, Owner owner) noexcept;
  void note_unmapped(const void* memory, std::size_t bytes, Owner owner) noexcept;

  enum class OpenResult : std::uint8_t {
    kRefused,    ///< it is not in an aperture, or too much is open
    kWasMapped,  ///< another thread has mapped it in the meantime
    kOpened,
  };
  /// Makes the piece around `address` accessible although nothing is mapped there: it reads as
  /// zeros. Called by a signal handler.
  OpenResult open(const void* address, bool writes) noexcept;
  /// Undoes all calls of open().
  void close_opened() noexcept;

 private:
  static constexpr int kMostWritable = 512;  // pieces, of a GiB

  std::size_t untouched() const;
  std::size_t piece_of(const void* memory) const noexcept;
  void* begin_of(std::size_t piece) const noexcept;
  bool is_mapped(std::size_t piece) const noexcept {
    return own_.contains(piece) || foreign_.contains(piece);
  }

  const std::uintptr_t apertures_;
  const std::size_t pieces_;
  MappedPieces own_;
  MappedPieces foreign_;
  std::atomic_flag changing_;
  MappedPieces opened_;                // written with changing_
  std::atomic<int> opened_count_{0};   // likewise
  int writable_ = 0;                   // likewise
  std::atomic<std::size_t> bytes_{0};  // of own_
  MemoryBudget budget_;
};

/// Prints one line on stderr if a device's capacity is more than the machine, or the process's
/// control group, has.
void report_capacity_beyond_machine(std::size_t capacity);

}  // namespace openreg
