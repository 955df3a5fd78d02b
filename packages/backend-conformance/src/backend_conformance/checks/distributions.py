"""Distributions: whether random numbers have the requested distribution.

Random operators turn numbers of the generator into a distribution. Their values differ from those of the CPU and of
other devices, so only what they have in common can be checked: means, deviations, ranges, and that permutations are
permutations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check

_N = 40_000
# The mean and the standard deviation of each distribution.
_DISTRIBUTIONS: dict[str, tuple[Callable[[torch.device], torch.Tensor], float, float]] = {
    "uniform": (lambda where: torch.rand(_N, device=where), 0.5, 12**-0.5),
    "uniform of a range": (lambda where: torch.empty(_N, device=where).uniform_(-3, 5), 1.0, 8 * 12**-0.5),
    "normal": (lambda where: torch.randn(_N, device=where), 0.0, 1.0),
    "normal with mean and deviation": (lambda where: torch.empty(_N, device=where).normal_(3, 0.5), 3.0, 0.5),
    "exponential": (lambda where: torch.empty(_N, device=where).exponential_(2), 0.5, 0.5),
    "bernoulli": (lambda where: torch.bernoulli(torch.full((_N,), 0.3, device=where)), 0.3, 0.21**0.5),
    "geometric": (lambda where: torch.empty(_N, device=where).geometric_(0.25), 4.0, 12**0.5),
    "log normal": (lambda where: torch.empty(_N, device=where).log_normal_(0, 0.25), 1.03174, 0.26204),
    "poisson": (lambda where: torch.poisson(torch.full((_N,), 4.0, device=where)), 4.0, 2.0),
    "randint": (lambda where: torch.randint(-5, 6, (_N,), device=where).float(), 0.0, 10**0.5),
    "large randint": (
        lambda where: (torch.randint(0, 1 << 40, (_N,), device=where) >> 20).float() / (1 << 20),
        0.5,
        12**-0.5,
    ),
    "multinomial": (
        lambda where: torch.multinomial(torch.tensor([1.0, 0, 3], device=where), _N, replacement=True).float(),
        1.5,
        0.75**0.5,
    ),
}


@check(level=Level.TRAINS, hook="random operators", cases=tuple(_DISTRIBUTIONS))
def numbers_have_their_distribution(device: Device, case: str) -> None:
    """Mean and standard deviation of 40,000 numbers are those of the distribution."""
    draw, mean, deviation = _DISTRIBUTIONS[case]
    torch.manual_seed(0)
    numbers = draw(device.this).cpu().double()
    tolerance = 6 * deviation / _N**0.5
    found = numbers.mean().item(), numbers.std().item()
    assert abs(found[0] - mean) < tolerance, f"the mean is {found[0]:.4f} instead of {mean:.4f}"
    assert abs(found[1] - deviation) < 0.05 * deviation, f"the deviation is {found[1]:.4f} instead of {deviation:.4f}"


@check(level=Level.TRAINS, hook="aten::randperm.generator_out, aten::multinomial")
def permutations_have_each_element_once(device: Device) -> None:
    """`randperm` has each element once, and not in order; `multinomial` without replacement draws none twice."""
    torch.manual_seed(0)
    for size in (1, 2, 50, 5000):
        found = torch.randperm(size, device=device.this)
        assert found.dtype == torch.int64
        assert torch.equal(found.sort().values.cpu(), torch.arange(size))
    assert not torch.equal(found.cpu(), torch.arange(size))
    drawn = torch.multinomial(torch.ones(200, device=device.this), 150).tolist()
    assert len(set(drawn)) == 150


@check(level=Level.COMPLETE, hook="aten::uniform_: the upper end is not included")
def uniform_numbers_are_below_one(device: Device) -> None:
    """`rand` is in [0, 1) for each floating dtype, also where rounding to few bits could give 1."""
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        numbers = torch.rand(200_000, device=device.this, dtype=dtype).float()
        lowest, highest = numbers.min().item(), numbers.max().item()
        assert 0 <= lowest and highest < 1, f"rand of {dtype} is between {lowest} and {highest}"
        assert highest > 0.98 and lowest < 0.02


@check(level=Level.TRAINS, hook="aten::native_dropout and its derivative")
def dropout_scales_and_drops_the_same_in_both_passes(device: Device) -> None:
    """Dropout zeroes about a share of `p`, scales the rest by 1/(1-p), and its derivative has the same mask."""
    torch.manual_seed(0)
    x = torch.ones(20_000, device=device.this, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.3)
    y.sum().backward()
    values = y.detach().cpu()
    assert x.grad is not None and torch.equal(values, x.grad.cpu())
    dropped = values.eq(0).float().mean().item()
    assert abs(dropped - 0.3) < 0.03, f"a share of {dropped} is dropped, instead of 0.3"
    torch.testing.assert_close(values[values != 0], torch.full_like(values[values != 0], 1 / 0.7))
    assert torch.equal(torch.nn.functional.dropout(x, 0.3, training=False).cpu(), x.cpu())
