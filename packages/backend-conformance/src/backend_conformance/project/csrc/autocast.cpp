// Mixed precision: which operators torch.autocast runs in the low dtype, and which in float32. The
// lists are PyTorch's, the same as for CUDA. With the fallthrough alone, autocast would be accepted
// and do nothing.
#include <ATen/autocast_mode.h>

// The macros are made for this namespace.
namespace at::autocast {

namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                   std::int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy is unsafe to autocast. Use "
              "binary_cross_entropy_with_logits, which includes the sigmoid.");
}

}  // namespace

// Operators that are in no list keep their dtype.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define ACME_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(ACME_LOWER_PRECISION)
#define ACME_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(ACME_FP32)
#define ACME_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(ACME_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define ACME_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(ACME_PROMOTE)
#if __has_include(<ATen/ops/linalg_matrix_sqrth.h>)  // since torch 2.14.1, and in no list
  KERNEL_PRIVATEUSEONE(linalg_matrix_sqrth, fp32)
#endif
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace at::autocast
