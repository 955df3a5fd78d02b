#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace openreg::ops {

/// How CUDA's random kernels share out the numbers of a generator, for a device of 132
/// multiprocessors of 2048 threads. Thread t of the grid draws from subsequence t of Philox
/// 4x32-10; each round it takes one call of four 32-bit numbers, of which it makes `unroll`
/// elements, `threads` apart: number i of round r is element (r * unroll + i) * threads + t.
struct PhiloxGrid {
  PhiloxGrid(std::int64_t elements, int unroll);

  std::int64_t elements;
  int unroll;            ///< elements per call: 4 (of 32 bits each) or 2 (of 64)
  std::int64_t threads;  ///< of the whole grid
  std::int64_t rounds;
  /// How far the generator's offset advances.
  std::uint64_t numbers() const { return static_cast<std::uint64_t>(rounds) * 4; }
};

/// The four numbers of one call, for `count` subsequences from `first` on; `offset` as a
/// generator's, a multiple of 4. Pure: D. E. Shaw's Philox 4x32-10 (Salmon et al., SC 2011) with
/// cuRAND's use of the counter: offset / 4 in the lower half, the subsequence in the upper one.
void philox_4x32_10(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                    std::size_t count, std::uint32_t* x, std::uint32_t* y, std::uint32_t* z,
                    std::uint32_t* w) noexcept;

}  // namespace openreg::ops
