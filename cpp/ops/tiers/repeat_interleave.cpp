// repeat_interleave with a tensor of repeats: the host waits for their sum, unless the caller gives
// it as the size of the result. Then a wrong one is an error of the stream.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ops/launch/function_kernel.h"
#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// \param repeats int32 or int64 [indices]. \param out the same dtype [sum of repeats]: index i is
/// there repeats[i] times, in order.
void repeat_indices(const at::Tensor& repeats, at::Tensor& out) {
  const auto counts = repeats.contiguous();
  AT_DISPATCH_INDEX_TYPES(counts.scalar_type(), "repeat_interleave", [&] {
    const auto* const count = counts.const_data_ptr<index_t>();
    auto* next = out.mutable_data_ptr<index_t>();
    auto left = out.numel();
    for (std::int64_t i = 0; i < counts.numel(); ++i) {
      TORCH_CHECK(count[i] >= 0, "repeats can not be negative");
      TORCH_CHECK(count[i] <= left, "allocated size does not match required size");
      next = std::fill_n(next, count[i], static_cast<index_t>(i));
      left -= count[i];
    }
    TORCH_CHECK(left == 0, "allocated size does not match required size");
  });
}
// A probe's repeats have another sum.
const FunctionKernel<&repeat_indices> kernel{"aten::repeat_interleave.Tensor",
                                             ArgumentSupport::kAll};

/// repeat_interleave.Tensor(repeats, output_size)
void repeat_interleave(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor repeats = torch::jit::peek(*stack, 0, 2).toTensor();
  const auto size = torch::jit::peek(*stack, 1, 2).toOptional<std::int64_t>();
  if (!size) return fallback(op, stack);
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  auto out = at::empty({repeats.numel() == 0 ? 0 : *size}, repeats.options());
  kernel.launch(repeats.device(), repeats, out);
  torch::jit::drop(*stack, 2);
  stack->emplace_back(std::move(out));
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { impl_boxed<&repeat_interleave>(m, "repeat_interleave.Tensor"); }

}  // namespace openreg::ops
