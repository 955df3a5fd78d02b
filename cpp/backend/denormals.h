#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace openreg::backend {

/// torch.set_flush_denormal is a mode of the computing thread. A command carries the launching
/// thread's mode, so that its result does not depend on which thread runs it. On processors other
/// than x86 the mode is not carried.
#if defined(__SSE__)
inline constexpr unsigned kFlushDenormals = 0x8040;  // MXCSR: flush to zero, denormals are zero

inline bool flush_denormals() noexcept {
  return (_mm_getcsr() & kFlushDenormals) == kFlushDenormals;
}
inline void set_flush_denormals(bool on) noexcept {
  if (flush_denormals() != on) {
    _mm_setcsr(on ? _mm_getcsr() | kFlushDenormals : _mm_getcsr() & ~kFlushDenormals);
  }
}
#else
inline bool flush_denormals() noexcept { return false; }
inline void set_flush_denormals(bool) noexcept {}
#endif

}  // namespace openreg::backend
