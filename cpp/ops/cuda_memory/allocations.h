#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/cuda_memory/call.h"
#include "ops/cuda_memory/scratch.h"

namespace openreg::ops::cuda_memory {

// Note [What only CUDA allocates]
//
// The device's memory figures are CUDA's if the same blocks are allocated in the same order. CUDA's
// kernels also allocate what the CPU's do not: workspaces, buffers for partial sums, copies of
// operands, temporaries of sorts. allocations.cpp lists them with their sources in ATen; without
// computing (TORCH_OPENREG_COMPUTE=0) each launch of such an operator allocates them after its
// results, on its stream, and frees them as CUDA does. With computing nothing of this happens.
//
// What cannot be derived from ATen (the workspaces of cuDNN and cuSOLVER) is in the table too, so
// that a report can say which operators of a program it does not know.

/// How well an entry's bytes are known.
enum class Certainty : std::uint8_t {
  kExact,     ///< the bytes are CUDA's
  kEstimate,  ///< close to CUDA's: what is left out is said in `bytes`
  kUnknown,   ///< nothing is allocated
};

/// What CUDA's implementation of some operators allocates beside their results.
struct Allocation {
  std::string_view ops;  ///< of aten, with spaces between; with '*' at the end: all that begin so
  std::string_view what;
  std::string_view bytes;   ///< a formula
  std::string_view source;  ///< files of ATen 2.13, below aten/src/ATen
  Certainty certainty = Certainty::kExact;
  /// Allocates and frees it; null if it is unknown or happens elsewhere.
  void (*allocate)(const Call& call, Scratch& scratch) = nullptr;
};

std::span<const Allocation> all_allocations();

/// How often an entry's operators were launched so far without computing, and what was allocated
/// for them; in the order of all_allocations().
struct AllocationUse {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
};
AllocationUse use_of(std::size_t allocation);

/// While it lives, what the calling thread launches allocates nothing of this: it is a part of an
/// operator that allocates as a whole.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

}  // namespace openreg::ops::cuda_memory
