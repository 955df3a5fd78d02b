#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace openreg {

// The instructions that C++ cannot express, for x86-64 and 64-bit ARM. On other processors
// everything works, except that denormal numbers are never flushed on behalf of a launching thread.

/// A pause between two polls of a thread that spins.
inline void relax_cpu() noexcept;

/// Prefetches the cache line of `address`, which will be written.
inline void prefetch_for_write(const void* address) noexcept;

/// The mode of torch.set_flush_denormal: whether the calling thread's floating-point operations
/// replace denormal numbers by zero.
inline bool flush_denormals() noexcept;
inline void set_flush_denormals(bool on) noexcept;

#if defined(__x86_64__)

inline void relax_cpu() noexcept { _mm_pause(); }

inline void prefetch_for_write(const void* address) noexcept {
  // The builtin emits this instruction only if it compiles for newer processors.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
}

inline constexpr unsigned kFlushDenormals = 0x8040;  // MXCSR: flush to zero, denormals are zero

inline bool flush_denormals() noexcept {
  return (_mm_getcsr() & kFlushDenormals) == kFlushDenormals;
}
inline void set_flush_denormals(bool on) noexcept {
  if (flush_denormals() != on) {
    _mm_setcsr(on ? _mm_getcsr() | kFlushDenormals : _mm_getcsr() & ~kFlushDenormals);
  }
}

#elif defined(__aarch64__)

// Not `yield`, which takes no time on cores that run only one thread.
inline void relax_cpu() noexcept { asm volatile("isb" : : : "memory"); }

inline void prefetch_for_write(const void* address) noexcept {
  __builtin_prefetch(address, /*rw=*/1);
}

inline constexpr std::uint64_t kFlushDenormals = std::uint64_t{1} << 24;  // FPCR.FZ

inline std::uint64_t float_control() noexcept {
  std::uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
}
inline bool flush_denormals() noexcept { return (float_control() & kFlushDenormals) != 0; }
inline void set_flush_denormals(bool on) noexcept {
  if (flush_denormals() != on) {
    const auto fpcr = float_control() ^ kFlushDenormals;
    asm volatile("msr fpcr, %0" : : "r"(fpcr) : "memory");
  }
}

#else

inline void relax_cpu() noexcept {}
inline void prefetch_for_write(const void* address) noexcept {
  __builtin_prefetch(address, /*rw=*/1);
}
inline bool flush_denormals() noexcept { return false; }
inline void set_flush_denormals(bool) noexcept {}

#endif

}  // namespace openreg
