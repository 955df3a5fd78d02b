#include "ops/launch/half_precision.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace openreg::ops {

namespace {

#if defined(__x86_64__)

/// For what Clang 14 cannot ask __builtin_cpu_supports().
struct Cpuid {
  explicit Cpuid(unsigned leaf) {
    if (__get_cpuid_count(leaf, 0, &a, &b, &c, &d) == 0) a = b = c = d = 0;
  }
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
};

bool has_avx512_fp16() noexcept {
  constexpr unsigned kBit = 1U << 23;
  return (Cpuid(7).d & kBit) != 0 && __builtin_cpu_supports("avx512f") != 0;
}

#endif

}  // namespace

HalfInstructions HalfInstructions::here() {
#if defined(__x86_64__)
  return {.float16 = has_avx512_fp16(), .bfloat16 = __builtin_cpu_supports("avx512bf16") != 0};
#elif defined(__aarch64__)
  // PyTorch has no kernels of its own for products of float16 there.
  return {.float16 = false, .bfloat16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0};
#else
  return {};
#endif
}

bool has_f16c() noexcept {
#if defined(__x86_64__)
  return (Cpuid(1).c & bit_F16C) != 0 && __builtin_cpu_supports("avx") != 0;
#else
  return false;
#endif
}

std::span<const c10::ScalarType> HalfInstructions::missing() const {
  return std::span(kHalfDtypes)
      .subspan(float16 ? 1 : 0, (float16 ? 0U : 1U) + (bfloat16 ? 0U : 1U));
}

}  // namespace openreg::ops
