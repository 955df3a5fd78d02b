"""Recurrent networks as a whole: what one command computes, and what is left to PyTorch's composite operators."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from torch import nn
from waits import launches, no_waits

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]

TIME, BATCH, FEATURES, HIDDEN = 7, 3, 5, 4
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "without bias": {"bias": False},
    "batch first": {"num_layers": 2, "batch_first": True},
}


def network(kind: str, **options: Any) -> tuple[nn.Module, nn.Module]:
    """The same on the CPU and on the device."""
    on_cpu = KINDS[kind](FEATURES, HIDDEN, **options)
    return on_cpu, copy.deepcopy(on_cpu).to(DEVICE)


def sequence(batch_first: bool = False, **_: Any) -> torch.Tensor:
    return torch.randn(BATCH, TIME, FEATURES) if batch_first else torch.randn(TIME, BATCH, FEATURES)


def flat(results: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]


def assert_close(got: Any, expected: Any) -> None:
    for g, e in zip(flat(got), flat(expected), strict=True):
        torch.testing.assert_close(g.detach().cpu(), e.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_those_of_the_cpu(kind, options):
    on_cpu, on_device = network(kind, **OPTIONS[options])
    x = sequence(**OPTIONS[options])
    leaves = [x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()]
    for model, leaf in zip((on_cpu, on_device), leaves, strict=True):
        sum((each * each.cos()).sum() for each in flat(model(leaf))).backward()
    assert_close(on_device(leaves[1]), on_cpu(leaves[0]))
    assert_close(
        [leaves[1].grad, *(p.grad for p in on_device.parameters())],
        [leaves[0].grad, *(p.grad for p in on_cpu.parameters())],
    )


@pytest.mark.openreg_only
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients_a_network_is_one_command(kind, options, mode):
    on_cpu, on_device = network(kind, **OPTIONS[options])
    x = sequence(**OPTIONS[options])
    device_x = x.to(DEVICE)
    states = 2 if kind == "LSTM" else 1
    with mode():
        given = torch.randn(
            states, sum(1 for name, _ in on_cpu.named_parameters() if "weight_hh" in name), BATCH, HIDDEN
        )
        hx = tuple(given) if states == 2 else given[0]
        device_hx = tuple(given.to(DEVICE)) if states == 2 else given[0].to(DEVICE)
        assert_close(on_device(device_x, device_hx), on_cpu(x, hx))
        stats = launches(lambda: on_device(device_x, device_hx))
    assert stats["boxed"] == 1 and stats["typed"] == 0 and stats["host_waits"] == 0


@pytest.mark.openreg_only
@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_trains_with_a_command_for_each_layer_and_direction(directions):
    _, model = network("LSTM", num_layers=3, bidirectional=directions == 2)
    x = sequence().to(DEVICE)
    with no_waits():
        stats = launches(lambda: model(x))
    assert stats["boxed"] == 3 * directions and stats["host_waits"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_those_of_the_cpu(kind):
    on_cpu, on_device = network(kind)
    x = sequence()

    def second(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaf = x.requires_grad_()
        (first,) = torch.autograd.grad(model(leaf)[0].sin().sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [leaf, *model.parameters()], allow_unused=True)

    expected, got = second(on_cpu, x.clone()), second(on_device, x.to(DEVICE))
    assert [g is None for g in got] == [e is None for e in expected]
    assert_close(got, expected)


def test_dropout_draws_new_numbers_in_training_only():
    _, model = network("LSTM", num_layers=2, dropout=0.5)
    x = sequence().to(DEVICE)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            model.train()
            assert not torch.equal(model(x)[0], model(x)[0])
            model.eval()
            assert torch.equal(model(x)[0], model(x)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes(kind, dtype):
    on_cpu, on_device = network(kind, num_layers=2)
    x = sequence()
    expected = on_cpu(x)
    on_device = on_device.to(dtype)
    tolerance = 1e-5 if dtype == torch.float64 else 5e-2
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            got = on_device(x.to(DEVICE, dtype))
        for g, e in zip(flat(got), flat(expected), strict=True):
            torch.testing.assert_close(g.detach().cpu().float(), e.detach(), rtol=tolerance, atol=tolerance)


def test_projections_packed_and_unbatched_sequences_are_those_of_the_cpu():
    on_cpu, on_device = network("LSTM", proj_size=2)
    x = sequence()
    assert_close(on_device(x.to(DEVICE)), on_cpu(x))
    for kind in KINDS:
        on_cpu, on_device = network(kind)
        assert_close(on_device(x[:, 0].to(DEVICE)), on_cpu(x[:, 0]))
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 5, 2]))
        assert_close(on_device(packed.to(DEVICE))[0].data, on_cpu(packed)[0].data)


# oneDNN's kernels read as many elements as the sizes of a correct network have.
WRONG: dict[str, Callable[[list[torch.Tensor]], None]] = {
    "a short weight": lambda t: t.__setitem__(3, t[3][:-1]),
    "a narrow weight": lambda t: t.__setitem__(3, t[3][:, :-1]),
    "a short recurrent weight": lambda t: t.__setitem__(4, t[4][:-4]),
    "a short bias": lambda t: t.__setitem__(5, t[5][:-1]),
    "a small state": lambda t: t.__setitem__(1, t[1][:, :-1]),
    "a thin cell state": lambda t: t.__setitem__(2, t[2][..., :-1]),
    "a flat input": lambda t: t.__setitem__(0, t[0][0]),
    "another dtype": lambda t: t.__setitem__(4, t[4].double()),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("change", WRONG)
def test_wrong_sizes_are_refused(change, grad):
    on_cpu, _ = network("LSTM")
    tensors = [sequence(), *torch.randn(2, 1, BATCH, HIDDEN), *(p.detach() for p in on_cpu.parameters())]
    WRONG[change](tensors)
    x, hx, cx, *weights = (t.to(DEVICE).requires_grad_(grad) for t in tensors)
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError):
        torch.lstm(x, (hx, cx), weights, True, 1, 0.0, True, False, False)
    torch.accelerator.synchronize()


def test_autocast_decides_the_dtype():
    _, model = network("LSTM")
    x = sequence().to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert model(x)[0].dtype == torch.bfloat16


def test_forward_derivatives_are_those_of_the_cpu():
    on_cpu, on_device = network("RNN")  # PyTorch has none for the fused cells of the others
    x, tangent = sequence(), sequence()

    def derivative(model: nn.Module, x: torch.Tensor, tangent: torch.Tensor) -> Any:
        return torch.func.jvp(lambda x: model(x)[0], (x,), (tangent,))

    assert_close(derivative(on_device, x.to(DEVICE), tangent.to(DEVICE)), derivative(on_cpu, x, tangent))


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_torch_func_see_each_operator(kind):
    """Also where no tensor needs a gradient but that of the transform."""
    on_cpu, on_device = network(kind)
    x, weight = sequence(), torch.randn(TIME, BATCH, HIDDEN)
    for model in (on_cpu, on_device):
        model.requires_grad_(False)

    def gradient(model: nn.Module, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.func.grad(lambda weight: (model(x)[0] * weight).sum())(weight)

    def functionalized(model: nn.Module, x: torch.Tensor) -> Any:
        return torch.func.functionalize(lambda x: model(x)[0])(x)

    assert_close(gradient(on_device, x.to(DEVICE), weight.to(DEVICE)), gradient(on_cpu, x, weight))
    assert_close(functionalized(on_device, x.to(DEVICE)), functionalized(on_cpu, x))


@pytest.mark.openreg_only
def test_a_network_is_captured():
    on_cpu, on_device = network("LSTM", num_layers=2)
    x = sequence()
    static = x.to(DEVICE)
    with torch.no_grad():
        on_device(static)
        torch.accelerator.synchronize()
        graph = torch.openreg.CUDAGraph()
        with torch.openreg.graph(graph):
            result = on_device(static)
        other = sequence()
        static.copy_(other)
        graph.replay()
        assert_close(result, on_cpu(other))
