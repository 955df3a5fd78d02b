"""Calls that only a number makes bad: a dimension, an exponent, a scalar that the dtype does not hold, a divisor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from as_cpu import assert_same_tensor, moved, sentence
from devices import DEVICE


class Case(NamedTuple):
    call: Callable[..., Any]  # of the tensors, and the number
    tensors: Callable[[int], tuple[torch.Tensor, ...]]  # of a size
    good: Any
    bad: Any


def floats(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def bytes_(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).remainder(5).reshape(shape).to(torch.int8)


def one(n: int) -> tuple[torch.Tensor, ...]:
    return (bytes_(n, 3),)


def two(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, 3), bytes_(n, 3)


def three(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, 3), bytes_(n, 3), bytes_(n, 3)


def product(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, n), bytes_(n, 3), bytes_(3, n)


def product_with_vector(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n), bytes_(n, 3), bytes_(3)


def products(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(2, n, n), bytes_(2, n, 3), bytes_(2, 3, n)


def masked(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, 3), bytes_(n, 3) > 2


def indexed(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, 3), torch.tensor([0, 2])


def scattered(n: int) -> tuple[torch.Tensor, ...]:
    return bytes_(n, 3), torch.zeros(n, 3, dtype=torch.long)


def integers(n: int) -> tuple[torch.Tensor, ...]:
    return (torch.arange(5 * n).reshape(n, 5),)


CASES: dict[str, Case] = {
    # A parameter out of its range
    "renorm-dimension": Case(lambda x, d: torch.renorm(x, 2, d, 1.0), lambda n: (floats(n, 3),), 0, 5),
    "renorm-exponent": Case(lambda x, p: torch.renorm(x, p, 0, 1.0), lambda n: (floats(n, 3),), 2, -1),
    "renorm-maximum": Case(lambda x, m: torch.renorm(x, 2, 0, m), lambda n: (floats(n, 3),), 1.0, -1.0),
    "histc-limits": Case(lambda x, m: torch.histc(x, 4, 0, m), lambda n: (floats(n),), 3, -1),
    "histc-bins": Case(lambda x, b: torch.histc(x, b, 0, 9), lambda n: (floats(n),), 3, 0),
    "huber_loss-delta": Case(lambda x, y, d: F.huber_loss(x, y, delta=d), lambda n: (floats(n), floats(n)), 1.0, 0.0),
    "smooth_l1_loss-beta": Case(
        lambda x, y, b: F.smooth_l1_loss(x, y, beta=b), lambda n: (floats(n), floats(n)), 1.0, -1.0
    ),
    "cdist-exponent": Case(lambda x, y, p: torch.cdist(x, y, p), lambda n: (floats(n, 3), floats(2, 3)), 1.0, -1.0),
    "pdist-exponent": Case(lambda x, p: F.pdist(x, p), lambda n: (floats(n, 3),), 1.0, -1.0),
    "multi_margin_loss-exponent": Case(
        torch._C._nn.multi_margin_loss, lambda n: (floats(n, 3), torch.zeros(n, dtype=torch.long)), 1, 3
    ),
    "softplus-threshold": Case(lambda x, t: F.softplus(x, 1, t), lambda n: (floats(n),), 20, -1),
    # A scalar that eight bits do not hold
    "add-alpha": Case(lambda x, y, a: torch.add(x, y, alpha=a), two, 2, 300),
    "sub-alpha": Case(lambda x, y, a: torch.sub(x, y, alpha=a), two, 2, 300),
    "add_-alpha": Case(lambda x, y, a: x.add_(y, alpha=a), two, 2, -300),
    "add-scalar": Case(lambda x, y: x + y, one, 2, 300),
    "mul-scalar": Case(lambda x, y: x * y, one, 2, 300),
    "addmm-alpha": Case(lambda x, a, b, s: torch.addmm(x, a, b, alpha=s), product, 2, 300),
    "addmm-beta": Case(lambda x, a, b, s: torch.addmm(x, a, b, beta=s), product, 2, 300),
    "addmv-alpha": Case(lambda x, a, b, s: torch.addmv(x, a, b, alpha=s), product_with_vector, 2, 300),
    "addmv-beta": Case(lambda x, a, b, s: torch.addmv(x, a, b, beta=s), product_with_vector, 2, 300),
    "baddbmm-alpha": Case(lambda x, a, b, s: torch.baddbmm(x, a, b, alpha=s), products, 2, 300),
    "baddbmm-beta": Case(lambda x, a, b, s: torch.baddbmm(x, a, b, beta=s), products, 2, 300),
    "addr-alpha": Case(lambda x, a, s: torch.addr(x, a[:, 0], a[0], alpha=s), two, 2, 300),
    "addcmul-value": Case(lambda x, a, b, v: torch.addcmul(x, a, b, value=v), three, 2, 300),
    "addcmul_-value": Case(lambda x, a, b, v: x.addcmul_(a, b, value=v), three, 2, 300),
    "hardtanh-maximum": Case(lambda x, m: F.hardtanh(x, -1, m), one, 3, 300),
    "hardtanh-minimum": Case(lambda x, m: F.hardtanh(x, m, 3), one, -1, -300),
    "clamp-maximum": Case(lambda x, m: x.clamp(max=m), one, 3, 300),
    "clamp-both": Case(lambda x, m: x.clamp(-m, m), one, 3, 300),
    "threshold": Case(lambda x, t: F.threshold(x, t, 0), one, 1, 300),
    "threshold-value": Case(lambda x, v: F.threshold(x, 1, v), one, 0, 300),
    "fill_": Case(lambda x, v: x.fill_(v), one, 2, 300),
    "masked_fill_": Case(lambda x, m, v: x.masked_fill_(m, v), masked, 2, 300),
    "index_fill_": Case(lambda x, i, v: x.index_fill_(0, i, v), indexed, 2, 300),
    "scatter_": Case(lambda x, i, v: x.scatter_(0, i, v), scattered, 2, 300),
    "eq": Case(lambda x, v: x.eq(v), one, 2, 300),
    "pow": Case(lambda x, v: x.pow(v), one, 2, -1),
    # A divisor
    "remainder": Case(lambda x, y: x % y, integers, 3, 0),
    "remainder_": Case(lambda x, y: x.remainder_(y), integers, 3, 0),
    "floor_divide": Case(lambda x, y: x // y, integers, 3, 0),
    "floor_divide_": Case(lambda x, y: x.floor_divide_(y), integers, 3, 0),
    "fmod": Case(lambda x, y: torch.fmod(x, y), integers, 3, 0),
    "div-floor": Case(lambda x, y: torch.div(x, y, rounding_mode="floor"), integers, 3, 0),
    "div-trunc": Case(lambda x, y: torch.div(x, y, rounding_mode="trunc"), integers, 3, 0),
}


def at_call(case: Case, arguments: Any, device: str) -> Any:
    """What the call returns, or raises. Errors of the stream are not asked for."""
    try:
        return case.call(*moved(arguments, device))
    except Exception as error:
        return error


def late_error() -> Exception | None:
    try:
        torch.accelerator.synchronize()
    except Exception as error:
        return error
    return None


def assert_answers_as_the_cpu(case: Case, arguments: Any) -> None:
    """The same values, or the same error, raised at the call; and no error later."""
    expected = at_call(case, arguments, "cpu")
    torch.accelerator.synchronize()
    got = at_call(case, arguments, DEVICE)
    late = late_error()
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"the CPU raises {expected!r}; {DEVICE} raises nothing, and later {late!r}"
        assert type(got) is type(expected), f"{got!r}; the CPU raises {expected!r}"
        assert sentence(got) == sentence(expected)
    else:
        assert not isinstance(got, Exception), f"{got!r}; the CPU raises nothing"
        assert late is None, late
        assert_same_tensor(got, expected)
    assert late is None, f"raised again later: {late!r}"


def check(case: Case, good_calls_before: int, size: int) -> None:
    good, bad = ((*case.tensors(size), number) for number in (case.good, case.bad))
    assert not isinstance(at_call(case, good, "cpu"), Exception)
    for _ in range(good_calls_before):
        assert_answers_as_the_cpu(case, good)
    for _ in range(2):
        assert_answers_as_the_cpu(case, bad)
        assert_answers_as_the_cpu(case, good)
