"""Compiled checkpoints: random numbers are the same when they are drawn again."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def like_a_tensor(x: torch.Tensor) -> list[torch.Tensor]:
    """The device is that of a tensor: of the first argument, of another one, or of one of no elements."""
    positive = x.detach().abs() + 1
    return [
        F.dropout(x, 0.5),
        F.dropout(x.bfloat16(), 0.5).float(),
        torch.rand_like(x),
        torch.randint_like(x, 3, 10),
        torch.bernoulli(positive / 4),
        torch.normal(x.detach(), positive),
        torch.normal(0.0, positive),
        torch.poisson(positive),
        torch.multinomial(positive, 2).sum(),
        F.dropout(x[:0], 0.5).sum(),
        F.rrelu(x, training=True),
    ]


def of_a_named_device(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.rand(x.shape, device=x.device),
        torch.randn(x.shape, device=str(x.device), dtype=torch.float64).float(),
        torch.randint(0, 10, x.shape, device=x.device),
        torch.normal(0.0, 1.0, x.shape, device=x.device),
    ]


def in_place(x: torch.Tensor) -> list[torch.Tensor]:
    fresh = torch.empty_like
    return [
        fresh(x).normal_(),
        fresh(x).uniform_(1, 2),
        fresh(x).exponential_(),
        fresh(x).cauchy_(),
        fresh(x).log_normal_(),
        fresh(x).geometric_(0.5),
        fresh(x).bernoulli_(0.3),
        fresh(x).bernoulli_(torch.full((), 0.3)),
    ]


def keep_sines(context: object, op: object, *_: object, **__: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE


SELECTIVE = {"context_fn": functools.partial(create_selective_checkpoint_contexts, keep_sines)}


def gradients(function: Callable[..., list[torch.Tensor]], device: str, backend: str, options: dict | None) -> list:
    """A result and its gradient. Without options nothing is computed again."""

    def block(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return sum((number.cos() * y for number in function(y)), start=y)

    def run(x: torch.Tensor) -> torch.Tensor:
        return block(x) if options is None else checkpoint(block, x, use_reentrant=False, **options)

    torch._dynamo.reset()
    x = torch.linspace(-2, 2, 32, device=device).view(8, 4).requires_grad_()
    compiled = torch.compile(run, backend=backend, fullgraph=True)
    torch.manual_seed(3)
    y = compiled(x)
    y.sum().backward()
    return [y.detach(), x.grad]


EVERY_DRAW = [like_a_tensor, of_a_named_device, in_place]


@pytest.mark.parametrize("function", EVERY_DRAW)
def test_numbers_are_the_same_when_drawn_again(function):
    expected = gradients(function, "openreg:1", "aot_eager", None)
    assert_close(gradients(function, "openreg:1", "aot_eager", {}), expected)
    assert_close(gradients(function, "openreg:1", "aot_eager", SELECTIVE), expected)


def two_draws(x: torch.Tensor) -> list[torch.Tensor]:
    return [F.dropout(torch.ones_like(x), 0.5), torch.empty_like(x).uniform_(1, 2)]


@pytest.mark.parametrize("options", [{}, SELECTIVE], ids=["all", "selective"])
@pytest.mark.parametrize(
    ("device", "function"),
    [
        ("openreg:0", two_draws),
        *(pytest.param("openreg:0", function, marks=pytest.mark.full) for function in EVERY_DRAW),
        *(pytest.param("cpu", function, marks=pytest.mark.full) for function in EVERY_DRAW),
    ],
)
def test_inductor_draws_the_same_numbers_again(device, function, options):
    # The order of draws depends on the rest of the graph, so without a checkpoint the numbers differ. But if they do
    # not depend on x, the result is a multiple of sin(x), and the gradient the same one of cos(x).
    result, gradient = gradients(lambda x: function(x.detach()), device, "inductor", options)
    x = torch.linspace(-2, 2, 32, device=device).view(8, 4)
    assert_close(gradient, result / x.sin() * x.cos())


def test_a_state_is_a_tensor_of_its_own_in_a_mode_of_fake_tensors():
    expected = torch.openreg.get_rng_state()
    with FakeTensorMode():
        state = torch.openreg.get_rng_state()
    assert type(state) is torch.Tensor and state.equal(expected)
