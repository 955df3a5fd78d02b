// The cells of LSTM and GRU. PyTorch routes them to fused operators on every device except the CPU,
// which has none: here one command computes a cell with ATen's CPU operators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <optional>
#include <tuple>

#include "ops/launch/function_kernel.h"
#include "ops/tensors/checks.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// The n adjacent parts of a matrix [batch, n * hidden], each [batch, hidden].
template <std::size_t n>
std::array<at::Tensor, n> gates(const at::Tensor& matrix) {
  const auto hidden = matrix.size(1) / static_cast<std::int64_t>(n);
  std::array<at::Tensor, n> parts;
  for (std::size_t i = 0; i < n; ++i)
    parts[i] = matrix.narrow(1, static_cast<std::int64_t>(i) * hidden, hidden);
  return parts;
}

// The derivatives of sigmoid and tanh, in terms of their results.
at::Tensor sigmoid_slope(const at::Tensor& y) { return y * (1 - y); }
at::Tensor tanh_slope(const at::Tensor& y) { return 1 - y * y; }

void lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
               const OptionalTensor& input_bias, const OptionalTensor& hidden_bias, at::Tensor& hy,
               at::Tensor& cy, at::Tensor& workspace) {
  at::add_out(workspace, input_gates, hidden_gates);
  if (given(input_bias)) workspace.add_(*input_bias).add_(*hidden_bias);
  auto parts = gates<4>(workspace);
  auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  in.sigmoid_();
  forget.sigmoid_();
  cell.tanh_();
  out.sigmoid_();
  at::mul_out(cy, forget, cx);
  cy.addcmul_(in, cell);
  at::tanh_out(hy, cy);
  hy.mul_(out);
}

void lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                        const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace,
                        at::Tensor& grad_gates, at::Tensor& grad_cx, at::Tensor& grad_bias) {
  const auto parts = gates<4>(workspace);
  const auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  auto to = gates<4>(grad_gates);
  const auto tanh_cy = cy.tanh();
  auto grad_cell = given(grad_cy) ? grad_cy->clone() : at::zeros_like(cy);
  if (given(grad_hy)) {
    grad_cell.addcmul_(*grad_hy * out, tanh_slope(tanh_cy));
    at::mul_out(to[3], *grad_hy * tanh_cy, sigmoid_slope(out));
  } else {
    to[3].zero_();
  }
  at::mul_out(to[0], grad_cell * cell, sigmoid_slope(in));
  at::mul_out(to[1], grad_cell * cx, sigmoid_slope(forget));
  at::mul_out(to[2], grad_cell * in, tanh_slope(cell));
  at::mul_out(grad_cx, grad_cell, forget);
  if (grad_bias.defined()) at::sum_out(grad_bias, grad_gates, 0);
}

// The workspace: reset gate, update gate, new gate, hx, and the new gate's hidden part.
void gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
              const OptionalTensor& input_bias, const OptionalTensor& hidden_bias, at::Tensor& hy,
              at::Tensor& workspace) {
  const auto input = gates<3>(given(input_bias) ? input_gates + *input_bias : input_gates);
  const auto hidden = gates<3>(given(hidden_bias) ? hidden_gates + *hidden_bias : hidden_gates);
  auto parts = gates<5>(workspace);
  auto &reset = parts[0], &update = parts[1], &fresh = parts[2];
  at::add_out(reset, input[0], hidden[0]).sigmoid_();
  at::add_out(update, input[1], hidden[1]).sigmoid_();
  at::mul_out(fresh, reset, hidden[2]).add_(input[2]).tanh_();
  parts[3].copy_(hx);
  parts[4].copy_(hidden[2]);
  at::mul_out(hy, hx - fresh, update);
  hy.add_(fresh);
}

void gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace,
                       at::Tensor& grad_input_gates, at::Tensor& grad_hidden_gates,
                       at::Tensor& grad_hx, at::Tensor& grad_input_bias,
                       at::Tensor& grad_hidden_bias) {
  const auto parts = gates<5>(workspace);
  const auto &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3],
             &hidden_part = parts[4];
  auto input = gates<3>(grad_input_gates);
  auto hidden = gates<3>(grad_hidden_gates);
  at::mul_out(grad_hx, grad_hy, update);
  at::mul_out(input[1], grad_hy * (hx - fresh), sigmoid_slope(update));
  at::mul_out(input[2], grad_hy - grad_hx, tanh_slope(fresh));
  at::mul_out(input[0], input[2] * hidden_part, sigmoid_slope(reset));
  hidden[0].copy_(input[0]);
  hidden[1].copy_(input[1]);
  at::mul_out(hidden[2], input[2], reset);
  if (grad_input_bias.defined()) {
    at::sum_out(grad_input_bias, grad_input_gates, 0);
    at::sum_out(grad_hidden_bias, grad_hidden_gates, 0);
  }
}

const FunctionKernel<&lstm_cell> lstm_kernel{"aten::_thnn_fused_lstm_cell"};
const FunctionKernel<&lstm_cell_backward> lstm_backward_kernel{
    "aten::_thnn_fused_lstm_cell_backward_impl"};
const FunctionKernel<&gru_cell> gru_kernel{"aten::_thnn_fused_gru_cell"};
const FunctionKernel<&gru_cell_backward> gru_backward_kernel{"aten::_thnn_fused_gru_cell_backward"};

/// Checks the arguments of either cell: n gates, each as wide as the state.
void check_cell(const char* name, std::int64_t n, const at::Tensor& input_gates,
                const at::Tensor& hidden_gates, const at::Tensor& state,
                const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  TORCH_CHECK(input_gates.dim() == 2 && input_gates.sizes() == hidden_gates.sizes(), name,
              ": expected gates of input and hidden state of one shape [batch, ", n,
              " * hidden] (got ", input_gates.sizes(), " and ", hidden_gates.sizes(), ")");
  TORCH_CHECK(state.dim() == 2 && state.size(0) == input_gates.size(0) &&
                  state.size(1) * n == input_gates.size(1),
              name, ": expected a state [batch, hidden] for gates ", input_gates.sizes(), " (got ",
              state.sizes(), ")");
  TORCH_CHECK(given(input_bias) == given(hidden_bias), name, ": expected both biases or none");
  for (const auto& bias : {input_bias, hidden_bias}) {
    TORCH_CHECK(!given(bias) || (bias->dim() == 1 && bias->size(0) == input_gates.size(1)), name,
                ": expected a bias [", n, " * hidden] for gates ", input_gates.sizes(), " (got ",
                bias->sizes(), ")");
  }
  for (const auto* other : {&hidden_gates, &state}) {
    TORCH_CHECK(other->scalar_type() == input_gates.scalar_type(), name,
                ": expected tensors of one dtype (got ", input_gates.scalar_type(), " and ",
                other->scalar_type(), ")");
  }
}

at::Tensor empty_matrix(const at::Tensor& like, std::int64_t columns) {
  return empty_on(like.device(), {like.size(0), columns}, like.scalar_type());
}

at::Tensor empty_vector(const at::Tensor& like, std::int64_t size, bool wanted) {
  return wanted ? empty_on(like.device(), {size}, like.scalar_type()) : at::Tensor();
}

/// Shapes: gates [batch, 4 * hidden] (input, forget, cell, output), cx [batch, hidden], biases
/// [4 * hidden]. \return hy and cy, like cx, and the gates' activations, for the backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor> thnn_fused_lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  check_cell("lstm_cell", 4, input_gates, hidden_gates, cx, input_bias, hidden_bias);
  auto hy = empty_matrix(cx, cx.size(1));
  auto cy = empty_matrix(cx, cx.size(1));
  auto workspace = empty_matrix(cx, 4 * cx.size(1));
  lstm_kernel.launch(cx.device(), input_gates, hidden_gates, cx, input_bias, hidden_bias, hy, cy,
                     workspace);
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> thnn_fused_lstm_cell_backward_impl(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!given(grad_hy) && !given(grad_cy)) return {};
  auto grad_gates = empty_matrix(workspace, workspace.size(1));
  auto grad_cx = empty_matrix(cx, cx.size(1));
  auto grad_bias = empty_vector(workspace, workspace.size(1), has_bias);
  lstm_backward_kernel.launch(cx.device(), grad_hy, grad_cy, cx, cy, workspace, grad_gates, grad_cx,
                              grad_bias);
  return {grad_gates, grad_cx, grad_bias};
}

/// Shapes: gates [batch, 3 * hidden] (reset, update, new), hx [batch, hidden], biases [3 * hidden].
/// \return hy, like hx, and the workspace for the backward, [batch, 5 * hidden].
std::tuple<at::Tensor, at::Tensor> thnn_fused_gru_cell(const at::Tensor& input_gates,
                                                       const at::Tensor& hidden_gates,
                                                       const at::Tensor& hx,
                                                       const OptionalTensor& input_bias,
                                                       const OptionalTensor& hidden_bias) {
  check_cell("gru_cell", 3, input_gates, hidden_gates, hx, input_bias, hidden_bias);
  auto hy = empty_matrix(hx, hx.size(1));
  auto workspace = empty_matrix(hx, 5 * hx.size(1));
  gru_kernel.launch(hx.device(), input_gates, hidden_gates, hx, input_bias, hidden_bias, hy,
                    workspace);
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> thnn_fused_gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto hidden = workspace.size(1) / 5;
  auto grad_input_gates = empty_matrix(workspace, 3 * hidden);
  auto grad_hidden_gates = empty_matrix(workspace, 3 * hidden);
  auto grad_hx = empty_matrix(workspace, hidden);
  auto grad_input_bias = empty_vector(workspace, 3 * hidden, has_bias);
  auto grad_hidden_bias = empty_vector(workspace, 3 * hidden, has_bias);
  gru_backward_kernel.launch(workspace.device(), grad_hy, workspace, grad_input_gates,
                             grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias);
  return {grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias};
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(thnn_fused_lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(thnn_fused_lstm_cell_backward_impl));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(thnn_fused_gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(thnn_fused_gru_cell_backward));
}

}  // namespace openreg::ops
