// Recurrent networks as a whole. PyTorch's composite operators launch some commands for each time
// step, which takes longer than computing them. Here a network that needs no gradient is one
// command, by the CPU's own operator; and an LSTM that does is one command for each layer and
// direction, by the kernel of oneDNN that the CPU uses.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "ops/launch/half_precision.h"
#include "ops/tiers/composite.h"
#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// The arguments of lstm.input, gru.input, rnn_tanh.input and rnn_relu.input.
struct Network {
  explicit Network(const torch::jit::Stack& stack)
      : input(argument(stack, 0).toTensor()),
        states(argument(stack, 1).isTensor()
                   ? std::vector<at::Tensor>{argument(stack, 1).toTensor()}
                   : argument(stack, 1).toTensorVector()),
        weights(argument(stack, 2).toTensorVector()),
        has_biases(argument(stack, 3).toBool()),
        layers(argument(stack, 4).toInt()),
        dropout(argument(stack, 5).toDouble()),
        training(argument(stack, 6).toBool()),
        directions(argument(stack, 7).toBool() ? 2 : 1),
        batch_first(argument(stack, 8).toBool()) {}

  static constexpr std::size_t kArguments = 9;
  static const c10::IValue& argument(const torch::jit::Stack& stack, std::size_t i) {
    return torch::jit::peek(stack, i, kArguments);
  }

  /// Those of one layer in one direction: of the input, of the state, and both biases.
  c10::ArrayRef<at::Tensor> weights_of(std::int64_t part) const {
    const std::size_t each = has_biases ? 4 : 2;
    return c10::ArrayRef(weights).slice(static_cast<std::size_t>(part) * each, each);
  }
  std::int64_t parts() const { return layers * directions; }
  bool draws_numbers() const { return training && dropout != 0 && layers > 1; }

  const at::Tensor input;                // [time, batch, features], or with the batch first
  const std::vector<at::Tensor> states;  // each [layers * directions, batch, hidden]
  const std::vector<at::Tensor> weights;
  const bool has_biases;
  const std::int64_t layers;
  const double dropout;
  const bool training;
  const std::int64_t directions;
  const bool batch_first;
};

/// Whether the CPU's operator may leave an LSTM of this dtype to oneDNN.
bool may_use_onednn(at::ScalarType dtype) {
  return at::globalContext().userEnabledMkldnn() &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
}

/// Whether the tensors have the sizes and the one dtype of an LSTM without projections. oneDNN's
/// kernels read as many elements as such a network has, and check nothing.
bool is_plain_lstm(const Network& network) {
  const auto& input = network.input;
  if (network.states.size() != 2 || input.dim() != 3 || input.numel() == 0) return false;
  const auto& hidden_state = network.states[0];
  if (hidden_state.dim() != 3) return false;
  const auto batch = input.size(network.batch_first ? 0 : 1);
  const auto hidden = hidden_state.size(2);
  const auto is = [&](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return tensor.scalar_type() == input.scalar_type() && tensor.device() == input.device() &&
           tensor.sizes() == sizes;
  };
  for (const auto& state : network.states)
    if (!is(state, {network.parts(), batch, hidden})) return false;
  const std::size_t each = network.has_biases ? 4 : 2;
  if (network.weights.size() != static_cast<std::size_t>(network.parts()) * each) return false;
  for (std::int64_t part = 0; part < network.parts(); ++part) {
    const auto weights = network.weights_of(part);
    const bool first = part < network.directions;
    const auto features = first ? input.size(2) : hidden * network.directions;
    if (!is(weights[0], {4 * hidden, features}) || !is(weights[1], {4 * hidden, hidden}))
      return false;
    if (network.has_biases && (!is(weights[2], {4 * hidden}) || !is(weights[3], {4 * hidden})))
      return false;
  }
  return true;
}

/// Whether oneDNN has a gradient for it on this processor.
bool is_trained_by_onednn(const Network& network) {
  const auto dtype = network.input.scalar_type();
  const bool fast =
      dtype == at::kFloat || (dtype == at::kBFloat16 && HalfInstructions::here().bfloat16);
  return fast && may_use_onednn(dtype) && is_plain_lstm(network);
}

/// Whether one command can run the CPU's operator.
bool is_one_command(const Network& network) {
  const bool may_read_beyond =
      network.states.size() == 2 && may_use_onednn(network.input.scalar_type());
  return !network.draws_numbers() && (!may_read_beyond || is_plain_lstm(network));
}

constexpr std::int64_t kLstm = 2;  // oneDNN's number of the cell

/// The operator lstm, with a gradient. Pushes the output and both states.
void lstm_by_layers(const Network& network, torch::jit::Stack& stack) {
  const auto hidden_states = network.states[0].contiguous();
  const auto cell_states = network.states[1].contiguous();
  const auto hidden = hidden_states.size(2);
  auto sequence = network.batch_first ? network.input.transpose(0, 1) : network.input;
  std::vector<at::Tensor> last_hidden;
  std::vector<at::Tensor> last_cell;
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    sequence = sequence.contiguous();
    std::vector<at::Tensor> outputs;
    for (std::int64_t direction = 0; direction < network.directions; ++direction) {
      const auto part = layer * network.directions + direction;
      const auto weights = network.weights_of(part);
      const auto bias = [&](std::size_t i) {
        return network.has_biases ? weights[i] : at::zeros({4 * hidden}, weights[0].options());
      };
      auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
          sequence, weights[0], weights[1], bias(2), bias(3), hidden_states[part],
          cell_states[part], /*reverse=*/direction == 1, /*batch_sizes=*/{}, kLstm, hidden,
          network.layers, network.has_biases, network.directions == 2, network.batch_first,
          network.training);
      outputs.push_back(std::move(output));
      last_hidden.push_back(std::move(hy));
      last_cell.push_back(std::move(cy));
    }
    sequence = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (network.dropout != 0 && network.training && layer + 1 < network.layers)
      sequence = at::dropout(sequence, network.dropout, /*train=*/true);
  }
  if (network.batch_first) sequence = sequence.transpose(0, 1);
  torch::jit::drop(stack, Network::kArguments);
  torch::jit::push(stack, std::move(sequence), at::stack(last_hidden), at::stack(last_cell));
}

void below_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!is_plain_call(torch::jit::last(*stack, Network::kArguments)) ||
      !is_one_command(Network(*stack)))
    return run_composite(op, stack);
  fallback(op, stack);
}

void with_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, Network::kArguments);
  if (!is_plain_call(arguments)) return run_composite(op, stack);
  const Network network(*stack);
  if (!needs_gradient(arguments) && is_one_command(network)) return run_as_one_command(op, stack);
  if (is_trained_by_onednn(network)) return lstm_by_layers(network, *stack);
  run_composite(op, stack);
}

constexpr const char* kOperators = "lstm.input gru.input rnn_tanh.input rnn_relu.input";

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { impl_boxed<&below_autograd>(m, kOperators); }

OPENREG_LIBRARY_IMPL_FOR(Autograd, aten, m) { impl_boxed<&with_autograd>(m, kOperators); }

}  // namespace openreg::ops
