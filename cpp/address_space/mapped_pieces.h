#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

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

}  // namespace openreg
