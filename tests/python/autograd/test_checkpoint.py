"""torch.utils.checkpoint: computing again instead of keeping."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

pytestmark = pytest.mark.any_device

both_ways = pytest.mark.parametrize("reentrant", [True, False])


@pytest.mark.openreg_only
@both_ways
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_random_numbers_are_the_same_when_computed_again(reentrant, device):
    drawn = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5)
        drawn.append(y.detach().cpu())
        return y * x

    x = torch.ones(100, device=device, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=reentrant)
    torch.rand(7, device=device)  # the generator goes on between the two
    state = torch.openreg.get_rng_state(device)
    y.sum().backward()
    assert len(drawn) == 2 and torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.openreg.get_rng_state(device), state)
    assert torch.equal(x.grad.cpu(), 2 * drawn[0])


@both_ways
def test_the_states_need_not_be_preserved(reentrant):
    drawn = []

    def block(x: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.rand(100, device=DEVICE).cpu())
        return x.exp()

    x = torch.ones(1, device=DEVICE, requires_grad=True)
    checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=False).sum().backward()
    assert not torch.equal(drawn[0], drawn[1])


def test_it_saves_memory():
    def peak(run) -> int:
        x = torch.ones(1 << 18, device=DEVICE, requires_grad=True)
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        run(lambda t: t.sin().cos().sin().cos().sin().cos(), x)
        return (torch.accelerator.memory_allocated() - before) // x.nbytes

    results = []
    kept = peak(lambda f, x: results.append(f(x)))
    recomputed = peak(lambda f, x: results.append(checkpoint(f, x, use_reentrant=False)))
    assert kept >= 6 and recomputed <= 2


class CountProducts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.mm.default
        return func(*args, **(kwargs or {}))


def test_what_the_policy_names_is_kept():
    def policy(ctx, op, *args, **kwargs) -> CheckpointPolicy:
        keep = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def run(**options) -> tuple[int, torch.Tensor]:
        x = torch.arange(16.0, device=DEVICE).view(4, 4).div(16).requires_grad_()
        with CountProducts() as mode:
            checkpoint(lambda t: (torch.sigmoid(t @ t) @ t).sin(), x, use_reentrant=False, **options).sum().backward()
        return mode.count, x.grad

    count, expected = run()
    selective, got = run(context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
    assert count - selective == 2  # the two products of the forward pass are not repeated
    assert torch.equal(got, expected)
