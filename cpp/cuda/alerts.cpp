// torch.use_deterministic_algorithms(): operators that compute the same bits in every run here, and
// on a GPU do not. A program that uses them has to fail, or to be warned, as it will there.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "slot.h"

namespace openreg::ops {

namespace {

using Arguments = at::ArrayRef<c10::IValue>;

struct Alert {
  std::string_view op;                   // without its overload
  const char* implementation;            // as CUDA's message names it
  bool (*applies)(Arguments) = nullptr;  // null: to every call
};

/// Otherwise the CPU's kernel says it.
bool accumulates(Arguments arguments) { return arguments[3].toBool(); }

bool counts_fractions(Arguments arguments) { return arguments[0].toTensor().is_floating_point(); }

bool has_indices(Arguments arguments) { return arguments.size() > 1 && arguments[1].isInt(); }

bool has_weights(Arguments arguments) { return arguments[1].isTensor(); }

bool multiplies(Arguments arguments) { return arguments[4].toStringView() == "prod"; }

/// The mode of a bag's backward pass, whose argument before it is a flag.
bool takes_greatest(Arguments arguments) {
  constexpr std::int64_t kMax = 2;
  return arguments[7].isInt() ? arguments[7].toInt() == kMax : arguments[8].toInt() == kMax;
}

constexpr auto kAlerts = std::to_array<Alert>({
    {"aten::_adaptive_avg_pool2d_backward", "adaptive_avg_pool2d_backward_cuda"},
    {"aten::_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward_cuda"},
    {"aten::_ctc_loss_backward", "ctc_loss_backward_gpu"},
    {"aten::_embedding_bag_backward", "embedding_bag_backward_cuda_max", &takes_greatest},
    {"aten::_embedding_bag_dense_backward", "embedding_bag_backward_cuda_max", &takes_greatest},
    {"aten::_upsample_bicubic2d_aa_backward", "upsample_bicubic2d_aa_backward_out_cuda"},
    {"aten::_upsample_bilinear2d_aa_backward", "upsample_bilinear2d_aa_backward_out_cuda"},
    {"aten::adaptive_max_pool2d_backward", "adaptive_max_pool2d_backward_cuda"},
    {"aten::avg_pool3d_backward", "avg_pool3d_backward_cuda"},
    {"aten::bincount", "_bincount_cuda", &has_weights},
    {"aten::fractional_max_pool2d_backward", "fractional_max_pool2d_backward_cuda"},
    {"aten::fractional_max_pool3d_backward", "fractional_max_pool3d_backward_cuda"},
    {"aten::grid_sampler_2d_backward", "grid_sampler_2d_backward_cuda"},
    {"aten::grid_sampler_3d_backward", "grid_sampler_3d_backward_cuda"},
    {"aten::histc", "_histc_cuda with floating point input", &counts_fractions},
    {"aten::median", "median CUDA with indices output", &has_indices},
    {"aten::nanmedian", "median CUDA with indices output", &has_indices},
    {"aten::nll_loss2d_forward", "nll_loss2d_forward_out_cuda_template"},
    {"aten::put_", "put_", &accumulates},
    {"aten::reflection_pad1d_backward", "reflection_pad1d_backward_out_cuda"},
    {"aten::reflection_pad3d_backward", "reflection_pad3d_backward_out_cuda"},
    {"aten::replication_pad1d_backward", "replication_pad1d_backward_cuda"},
    {"aten::replication_pad2d_backward", "replication_pad2d_backward_cuda"},
    {"aten::replication_pad3d_backward", "replication_pad3d_backward_cuda"},
    {"aten::scatter_reduce", "scatter_reduce_cuda_prod_", &multiplies},
    {"aten::scatter_reduce_", "scatter_reduce_cuda_prod_", &multiplies},
    {"aten::upsample_bicubic2d_backward", "upsample_bicubic2d_backward_out_cuda"},
    {"aten::upsample_bilinear2d_backward", "upsample_bilinear2d_backward_out_cuda"},
    {"aten::upsample_linear1d_backward", "upsample_linear1d_backward_out_cuda"},
    {"aten::upsample_trilinear3d_backward", "upsample_trilinear3d_backward_out_cuda"},
});

/// The overloads of these operators that other ones do not call.
constexpr auto kOverloads = std::to_array<std::string_view>(
    {"", "grad_input", "out", "output", "Tensor", "dim_values", "two", "two_out"});

void alert(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (at::globalContext().deterministicAlgorithms() && keys.has_backend(backend::kBackendBit)) {
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    const auto* const found = std::ranges::find(kAlerts, op.schema().name(), &Alert::op);
    if (found->applies == nullptr || found->applies(arguments))
      at::globalContext().alertNotDeterministic(found->implementation);
  }
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                      c10::DispatchKey::BackendSelect);
  op.redispatchBoxed(keys & below, stack);
}

}  // namespace

// Above the kernels, of which some are structured and some CPU's, and below autograd.
TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& each : kAlerts) {
    for (const auto overload : kOverloads) {
      const c10::OperatorName name{std::string(each.op), std::string(overload)};
      if (!dispatcher.findSchema(name)) continue;
      const auto full = c10::toString(name);
      m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&alert>());
    }
  }
}

}  // namespace openreg::ops
