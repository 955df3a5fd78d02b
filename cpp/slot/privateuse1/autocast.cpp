// Mixed precision: which operators torch.autocast("openreg") runs in the low dtype and which in
// float32. The lists and the casting are PyTorch's, the same as for CUDA; a backend only registers
// them.
#include <ATen/autocast_mode.h>

#include "slot.h"

// The macros below are written for this namespace.
namespace at::autocast {

namespace {

Tensor binary_cross_entropy_banned(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                   std::int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer. In this case, "
      "combine the two "
      "layers using torch.nn.functional.binary_cross_entropy_with_logits or "
      "torch.nn.BCEWithLogitsLoss, which are "
      "safe to autocast.");
}

}  // namespace

OPENREG_LIBRARY_IMPL_FOR(Autocast, _, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

OPENREG_LIBRARY_IMPL_FOR(Autocast, aten, m) {
#define OPENREG_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(OPENREG_LOWER_PRECISION)
#define OPENREG_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(OPENREG_FP32)
#define OPENREG_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(OPENREG_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define OPENREG_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(OPENREG_PROMOTE)
#if __has_include(<ATen/ops/linalg_matrix_sqrth.h>)  // since torch 2.14.1
  KERNEL_PRIVATEUSEONE(linalg_matrix_sqrth, fp32)
#endif
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}

}  // namespace at::autocast
