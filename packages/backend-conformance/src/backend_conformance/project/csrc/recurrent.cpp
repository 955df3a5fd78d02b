// The cells of LSTM and GRU. PyTorch calls fused operators for such a device, for which the CPU has
// no kernel. Registered above autograd, their parts have derivatives, so nothing else is needed.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <tuple>

namespace torch_acme {

namespace {

using Bias = std::optional<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const Bias& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// The third result is only for PyTorch's own derivative, which is not used.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cell,
                                                         const Bias& input_bias,
                                                         const Bias& hidden_bias) {
  const auto gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto part = gates.chunk(4, 1);  // input, forget, cell, output
  const auto next = part[1].sigmoid() * cell + part[0].sigmoid() * part[2].tanh();
  return {part[3].sigmoid() * next.tanh(), next, gates.detach()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates,
                                            const at::Tensor& hidden, const Bias& input_bias,
                                            const Bias& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);  // reset, update, new
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
  const auto update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {candidate + update * (hidden - candidate), reset.detach()};
}

void register_cells(torch::Library& m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_cells(m); }
// In inference mode there is no autograd.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_cells(m); }

}  // namespace torch_acme
