"""Reductions, scans and normalisations: operators whose results combine many elements.

Results must not depend on the layout, and half precision must accumulate in single precision: a sum of 16384 ones in
float16 is 16384, not the 2048 at which a sum in half precision stops.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from backend_conformance import Device, Level, check
from backend_conformance.checks.operators import numbers
from backend_conformance.comparison import ALL, COMPLEX, FLOATING, Comparison, Function, layouts
from backend_conformance.evidence import refused

REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1),
    "sum_keepdim": lambda x: x.sum((0, 1), keepdim=True),
    "sum_dtype": lambda x: x.sum(0, dtype=torch.float64 if not x.is_complex() else torch.complex128),
    "mean": lambda x: x.mean(0),
    "prod": lambda x: (x / 4 if x.is_floating_point() or x.is_complex() else x[:, :4]).prod(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((0, 1)),
    "max_dim": lambda x: x.max(1).values,
    "min_all": lambda x: x.min(),
    "argmax": lambda x: x.argmax(0),
    "argmin": lambda x: x.flatten().argmin(),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "all": lambda x: (x != 0).all(1),
    "any": lambda x: x.any(0),
    "count_nonzero": lambda x: torch.count_nonzero(x, 1),
    "var": lambda x: x.var(1),
    "std_population": lambda x: x.std(0, unbiased=False),
    "var_mean": lambda x: torch.var_mean(x, dim=1, correction=2),
    "norm": lambda x: x.norm(),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, ord=3, dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "nansum": lambda x: x.nansum(0),
    "median": lambda x: x.median(),
    "quantile": lambda x: x.quantile(0.3, dim=0),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum_last": lambda x: x.cumsum(1),
    "cumprod": lambda x: (x / 3 if x.is_floating_point() or x.is_complex() else x[:, :4]).cumprod(1),
    "cummax": lambda x: x.cummax(1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "softmax": lambda x: x.softmax(1),
    "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "group_norm": lambda x: functional.group_norm(x.view(5, 2, 3), 2),
    "normalize": lambda x: functional.normalize(x, dim=1),
    "trace": lambda x: x.trace(),
    "equal": lambda x: torch.tensor(torch.equal(x, x.clone()), device=x.device),
}


@check(level=Level.TRAINS, hook="reduction kernels", cases=tuple(REDUCTIONS))
def reduction_follows_the_cpu(device: Device, case: str) -> None:
    """A reduction gives the CPU's values, shape and dtype for all dtypes and layouts, and its gradient.

    Sums of integers are int64. Where several elements are the largest, any index may be returned; the samples have no
    ties in floating point.
    """
    function = REDUCTIONS[case]
    comparison = Comparison(device)
    exact_only = case in ("argmax", "argmin")
    for dtype in ALL:
        if exact_only and not dtype.is_floating_point:
            continue
        for number, x in enumerate(layouts(numbers(dtype, seed=5))):
            comparison.call(f"{dtype}, layout {number}", function, [x], rtol=1e-4)
    for dtype in (*FLOATING, *COMPLEX):
        if dtype in (torch.float16, torch.bfloat16) and case in ("median", "quantile", "prod", "cumprod", "var_mean"):
            continue
        comparison.call(f"{dtype}, gradient", function, [numbers(dtype, seed=5)], gradients=True, rtol=1e-4)
    comparison.conclude()


LARGE: dict[str, Function] = {
    "sum": lambda x: x.sum(),
    "sum_first": lambda x: x.view(-1, 16).sum(0),
    "sum_last": lambda x: x.view(16, -1).sum(1),
    "mean": lambda x: x.mean(),
    "amax": lambda x: x.amax(),
    "argmax": lambda x: x.argmax(),
    "norm": lambda x: x.norm(),
    "var": lambda x: x.var(),
    "softmax": lambda x: x.view(16, -1).softmax(1),
    "cumsum": lambda x: x.view(16, -1).cumsum(1)[:, -1],
    "any": lambda x: (x > 1e9).any(),
    "count": lambda x: (x > 0).sum(),
    "transposed": lambda x: x.view(64, -1).t().sum(1),
    "sliced": lambda x: x[::3].sum(),
}


@check(level=Level.TRAINS, hook="reduction kernels", cases=tuple(LARGE))
def large_reduction_follows_the_cpu(device: Device, case: str) -> None:
    """Reductions over a hundred thousand elements agree with the CPU.

    Kernels divide large reductions among threads, and combine the parts: another path than that of small ones.
    """
    comparison = Comparison(device)
    for dtype in (torch.float32, torch.float64, torch.int32):
        x = numbers(dtype, (1 << 17,), seed=9)
        comparison.call(str(dtype), LARGE[case], [x], rtol=1e-3, atol=1e-2)
    comparison.conclude()


@check(level=Level.TRAINS, hook="reduction kernels")
def half_precision_accumulates_in_single_precision(device: Device) -> None:
    """Sums, means, norms and products of matrices in float16 and bfloat16 do not stop growing.

    A sum of 16384 ones in float16 is 16384; with an accumulator in half precision it would be 2048.
    """
    for dtype in (torch.float16, torch.bfloat16):
        ones = torch.ones(16384, dtype=dtype, device=device.this)
        exact = {
            "sum": (ones.sum(), 16384.0),
            "sum of columns": (ones.view(-1, 4).sum(0)[1], 4096.0),
            "mean": (ones.mean(), 1.0),
            "norm": (ones.norm(), 128.0),
            "mm": ((ones.view(1, -1) @ ones.view(-1, 1))[0, 0], 16384.0),
            "float32 sum": (ones.sum(dtype=torch.float32), 16384.0),
        }
        for name, (got, wanted) in exact.items():
            assert got.item() == wanted, f"{name} of {dtype} is {got.item()}, not {wanted}"


@check(level=Level.TRAINS, hook="reduction kernels")
def empty_reductions_have_their_neutral_element(device: Device) -> None:
    """Reductions over no elements give 0, 1, True, False or NaN, and `amax` raises.

    A kernel that starts with the first element reads beyond its tensor.
    """
    empty = torch.empty(0, 3, device=device.this)
    device.cpu_equal(empty.sum(0), torch.zeros(3))
    device.cpu_equal(empty.prod(0), torch.ones(3))
    device.cpu_equal(empty.mean(0), torch.full((3,), float("nan")))
    device.cpu_equal(empty.all(0), torch.ones(3, dtype=torch.bool))
    device.cpu_equal(empty.any(), torch.tensor(False))
    device.cpu_equal(empty.sum(1), torch.zeros(0))
    device.cpu_equal(empty.norm(), torch.tensor(0.0))
    device.cpu_equal(empty.t() @ empty, torch.zeros(3, 3))
    device.cpu_equal(
        torch.addmm(torch.ones(3, 3, device=device.this), empty.t(), empty, beta=2), torch.full((3, 3), 2.0)
    )
    refusals: list[Callable[[], object]] = [lambda: empty.amax(0), lambda: empty.argmax(0), lambda: empty.max()]
    for each in refusals:
        refused(each, "a maximum of no elements was returned", IndexError, RuntimeError)
    device.cpu_equal(torch.tensor(3.0, device=device.this).sum(), torch.tensor(3.0))
