"""The cells of LSTM and GRU: gradients, and gradients of those, are what autograd says of the formulas."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from waits import no_waits

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]

BATCH, HIDDEN = 3, 5


def lstm(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    enter, forget, cell, leave = gates.chunk(4, 1)
    cy = forget.sigmoid() * cx + enter.sigmoid() * cell.tanh()
    return leave.sigmoid() * cy.tanh(), cy


def gru(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    (input_reset, input_update, input_new), (reset, update, new) = input_gates.chunk(3, 1), hidden_gates.chunk(3, 1)
    fresh = (input_new + (input_reset + reset).sigmoid() * new).tanh()
    return (fresh + (input_update + update).sigmoid() * (hx - fresh),)


def fused_lstm(*arguments):
    return torch.ops.aten._thnn_fused_lstm_cell(*arguments)[:2]


def fused_gru(*arguments):
    return torch.ops.aten._thnn_fused_gru_cell(*arguments)[:1]


CELLS = {"LSTM": (lstm, fused_lstm, 4), "GRU": (gru, fused_gru, 3)}


def arguments_of(gates: int, biased: bool) -> list[torch.Tensor]:
    shapes = [(BATCH, gates * HIDDEN)] * 2 + [(BATCH, HIDDEN)] + [(gates * HIDDEN,)] * (2 * biased)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def differentiate(cell, arguments, order, used):
    """Outputs that are used, gradients of their weighted sum, and so on, `order` times."""
    leaves = [a.detach().requires_grad_() for a in arguments]
    results = [cell(*leaves)[i] for i in used]
    found = list(results)
    for _ in range(order):
        weights = [torch.arange(r.numel(), device=r.device, dtype=r.dtype).view(r.shape).cos() for r in results]
        total = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
        results = [g for g in torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True) if g is not None]
        found += results
    return [f.detach() for f in found]


@pytest.mark.parametrize(("name", "used"), [("LSTM", [0, 1]), ("LSTM", [0]), ("LSTM", [1]), ("GRU", [0])])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_equal_those_of_the_formula(name, used, biased, order):
    formula, fused, gates = CELLS[name]
    arguments = arguments_of(gates, biased)
    expected = differentiate(formula, arguments, order, used)
    device_arguments = [a.to(DEVICE) for a in arguments]
    with no_waits():
        got = differentiate(fused, device_arguments, order, used)
    for g, e in zip(got, expected, strict=True):
        assert_close(g.cpu(), e)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("used", [[0], [1]])
def test_backward_of_one_result_takes_the_other_for_zero(used, biased):
    leaves = [a.requires_grad_() for a in arguments_of(4, biased)]
    outputs = [lstm(*leaves)[i] for i in used]
    weights = [torch.randn(BATCH, HIDDEN, dtype=torch.float64) if i in used else None for i in (0, 1)]
    expected = torch.autograd.grad(outputs, leaves, [weights[i] for i in used])

    device = [leaf.detach().to(DEVICE) for leaf in leaves]
    gradients = [None if w is None else w.to(DEVICE) for w in weights]
    with torch.no_grad():
        _, cy, workspace = torch.ops.aten._thnn_fused_lstm_cell(*device)
        got = torch.ops.aten._thnn_fused_lstm_cell_backward(*gradients, device[2], cy, workspace, biased)
    assert_close(got[0].cpu(), expected[0])
    assert_close(got[2].cpu(), expected[2])


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("biased", [True, False])
def test_backward_without_a_graph_equals_autograd(name, biased):
    formula, _, gates = CELLS[name]
    leaves = [a.requires_grad_() for a in arguments_of(gates, biased)]
    outputs = formula(*leaves)
    weights = [torch.randn_like(o) for o in outputs]
    expected = torch.autograd.grad(outputs, leaves, weights)

    device = [leaf.detach().to(DEVICE) for leaf in leaves]
    device_weights = [w.to(DEVICE) for w in weights]
    with torch.no_grad():
        if name == "LSTM":
            _, cy, workspace = torch.ops.aten._thnn_fused_lstm_cell(*device)
            got = torch.ops.aten._thnn_fused_lstm_cell_backward(*device_weights, device[2], cy, workspace, biased)
            of_graph = torch.ops.aten._thnn_differentiable_lstm_cell_backward(
                *device_weights, *device[:2], *(device[3:] or [None, None]), device[2], cy
            )
        else:
            _, workspace = torch.ops.aten._thnn_fused_gru_cell(*device)
            got = torch.ops.aten._thnn_fused_gru_cell_backward(*device_weights, workspace, biased)
            of_graph = torch.ops.aten._thnn_differentiable_gru_cell_backward(
                *device_weights, *device[:3], *(device[3:] or [None, None])
            )
    for results in (got, of_graph):
        for g, e in zip(results, [*expected, None, None][:5], strict=True):
            assert (g is None) == (e is None)
            if e is not None:
                assert_close(g.cpu(), e)


@pytest.mark.parametrize(
    "cell",
    [
        lambda d: torch.ops.aten._thnn_fused_lstm_cell(*[torch.ones(2, n, device=d) for n in (8, 12, 2)]),
        lambda d: torch.ops.aten._thnn_fused_lstm_cell(*[torch.ones(2, n, device=d) for n in (8, 8, 3)]),
        lambda d: torch.ops.aten._thnn_fused_gru_cell(*[torch.ones(n, 6, device=d) for n in (2, 2, 2)]),
        lambda d: torch.ops.aten._thnn_fused_gru_cell(
            torch.ones(2, 6, device=d),
            torch.ones(2, 6, device=d),
            torch.ones(2, 2, device=d),
            torch.ones(5, device=d),
            torch.ones(6, device=d),
        ),
    ],
)
def test_cells_of_wrong_shapes_say_what_they_expect(cell):
    with pytest.raises(RuntimeError, match="_cell: expected"):
        cell(DEVICE)
