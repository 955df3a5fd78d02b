"""Checkpoints inside a graph: the recomputation draws the numbers of the forward pass, in each replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

openreg = torch.openreg


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3))


Forward = Callable[[nn.Sequential, torch.Tensor], torch.Tensor]


def plain(reentrant: bool) -> Forward:
    return lambda net, x: checkpoint(net, x, use_reentrant=reentrant)


def nested(reentrant: bool) -> Forward:
    def inner(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(net[2:], net[:2](x), use_reentrant=reentrant)

    return lambda net, x: checkpoint(inner, net, x, use_reentrant=reentrant)


def twice(reentrant: bool) -> Forward:
    def forward(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(
            checkpoint(net, checkpoint(net, x, use_reentrant=reentrant), use_reentrant=reentrant)
        )

    return forward


def sequential(reentrant: bool) -> Forward:
    return lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", [plain, nested, twice, sequential])
def test_replays_compute_what_eager_computes_from_the_same_seed(kind, reentrant):
    torch.manual_seed(1)
    forward, net = kind(reentrant), block().openreg()
    x = torch.randn(4, 8, device="openreg", requires_grad=True)

    def step() -> list[torch.Tensor]:
        for each in (x, *net.parameters()):
            each.grad = None
        y = forward(net, x)
        y.square().sum().backward()
        return [y.detach(), x.grad, *(each.grad for each in net.parameters())]

    warm_up = openreg.Stream()
    warm_up.wait_stream(openreg.current_stream())
    with openreg.stream(warm_up):
        step()
    openreg.synchronize()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        captured = step()
    replayed = []
    openreg.manual_seed(3)
    for _ in range(3):
        graph.replay()
        replayed.append([each.cpu() for each in captured])
    state = openreg.get_rng_state()
    openreg.manual_seed(3)
    for got in replayed:
        torch.testing.assert_close(got, [each.cpu() for each in step()])
    assert torch.equal(openreg.get_rng_state(), state)
    assert not torch.equal(replayed[0][0], replayed[1][0])


def test_the_recomputation_draws_the_numbers_of_the_forward_pass():
    """Without other random numbers in the graph, the state that is restored is that of its begin."""
    draws: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        draws.append(torch.rand(5, device="openreg"))
        return x.sin() * draws[-1]

    x = torch.ones(5, device="openreg", requires_grad=True)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        torch.autograd.grad(checkpoint(function, x, use_reentrant=False).sum(), x)
    seen = []
    for _ in range(3):
        graph.replay()
        assert torch.equal(draws[0].cpu(), draws[1].cpu())
        seen.append(draws[0].cpu())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return plain(False)(self.net, x)


def test_graphed_callables_may_contain_checkpoints():
    torch.manual_seed(1)
    module = Checkpointed().openreg()
    x = torch.randn(4, 8, device="openreg", requires_grad=True)

    def step(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        openreg.manual_seed(3)
        y = function(x)
        gradients = torch.autograd.grad(y.square().sum(), [x, *module.parameters()])
        return [each.detach().cpu() for each in (y, *gradients)]

    eager = step(module)
    graphed = openreg.make_graphed_callables(module, (x,))
    forwards = [step(graphed)[0] for _ in range(2)]
    torch.testing.assert_close(forwards, [eager[0]] * 2)
