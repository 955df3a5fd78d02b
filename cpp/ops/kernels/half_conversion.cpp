#include "ops/kernels/half_conversion.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ops/launch/half_precision.h"

namespace openreg::ops {

namespace {

#if defined(__x86_64__)

constexpr std::int64_t kWidth = 8;

bool has_instructions() noexcept {
  static const bool has = has_f16c();
  return has;
}

/// The number of elements that it has converted, a multiple of kWidth.
[[gnu::target("avx,f16c")]] std::int64_t to_floats_by_vectors(const c10::Half* from, float* to,
                                                              std::int64_t count) noexcept {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

[[gnu::target("avx,f16c")]] std::int64_t to_halves_by_vectors(const float* from, c10::Half* to,
                                                              std::int64_t count) noexcept {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}

#else

constexpr bool has_instructions() noexcept { return false; }
std::int64_t to_floats_by_vectors(const c10::Half*, float*, std::int64_t) noexcept { return 0; }
std::int64_t to_halves_by_vectors(const float*, c10::Half*, std::int64_t) noexcept { return 0; }

#endif

}  // namespace

void to_floats(const c10::Half* from, float* to, std::int64_t count) noexcept {
  const auto done = has_instructions() ? to_floats_by_vectors(from, to, count) : 0;
  std::transform(from + done, from + count, to + done,
                 [](c10::Half half) { return static_cast<float>(half); });
}

void to_halves(const float* from, c10::Half* to, std::int64_t count) noexcept {
  const auto done = has_instructions() ? to_halves_by_vectors(from, to, count) : 0;
  std::transform(from + done, from + count, to + done,
                 [](float value) { return static_cast<c10::Half>(value); });
}

}  // namespace openreg::ops
