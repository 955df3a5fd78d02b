#include "ops/launch/half_precision.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace openreg::ops {

HalfInstructions HalfInstructions::here() {
#if defined(__x86_64__)
  return {.float16 = __builtin_cpu_supports("avx512fp16") != 0,
          .bfloat16 = __builtin_cpu_supports("avx512bf16") != 0};
#elif defined(__aarch64__)
  // PyTorch has no kernels of its own for products of float16 there.
  return {.float16 = false, .bfloat16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0};
#else
  return {};
#endif
}

std::span<const c10::ScalarType> HalfInstructions::missing() const {
  return std::span(kHalfDtypes)
      .subspan(float16 ? 1 : 0, (float16 ? 0U : 1U) + (bfloat16 ? 0U : 1U));
}

}  // namespace openreg::ops
