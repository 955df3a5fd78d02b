"""Pointwise operators: the selection that training needs, over all dtypes, layouts and special values.

The group `operator_database` compares all of PyTorch's operators. This one is quicker and looks closer: at strides,
broadcasting, promotion of dtypes, integers beyond 2**53, overflow, NaN and infinity, and at gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from backend_conformance import Device, Level, check
from backend_conformance.comparison import ALL, COMPLEX, FLOATING, INTEGRAL, Comparison, Function, layouts

POINTWISE = (*FLOATING, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)  # what training needs
NOT_REQUIRED = {("angle", torch.float16), ("angle", torch.bfloat16)}  # refused by CUDA


def numbers(dtype: torch.dtype, shape: tuple[int, ...] = (5, 6), positive: bool = False, seed: int = 0) -> torch.Tensor:
    """Values that differ by element, in the dtype's range, none of which is a tie of rounding."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 1 if positive or dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 2
    if dtype.is_complex:
        return torch.complex(values, torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    return (values.abs() + 0.3 if positive else values).to(dtype)


UNARY: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in (
            "abs neg exp exp2 expm1 sin cos tan tanh sigmoid erf floor ceil trunc sign square atan sinh asinh isnan "
            "isfinite logical_not bitwise_not angle deg2rad signbit"
        ).split()
    },
    **{
        name: getattr(functional, name)
        for name in "relu gelu silu softplus leaky_relu elu hardtanh mish logsigmoid".split()
    },
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "clamp": lambda x: x.clamp(-1, 2),
    "frac": lambda x: torch.frac(x),
    "to_float": lambda x: x.float() if not x.is_complex() else x,
    "nan_to_num": lambda x: torch.nan_to_num(x),
}
POSITIVE: dict[str, Function] = {
    name: getattr(torch, name) for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split()
}
BINARY: dict[str, Function] = {
    name: getattr(torch, name)
    for name in (
        "add sub mul eq ne lt le gt ge maximum minimum atan2 hypot logical_and logical_xor bitwise_and bitwise_or "
        "bitwise_xor fmax copysign"
    ).split()
}
DIVISIONS: dict[str, Function] = {
    "div": torch.div,
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}


def unary(device: Device, case: str, function: Function, positive: bool) -> None:
    comparison = Comparison(device, required=[each for each in POINTWISE if (case, each) not in NOT_REQUIRED])
    for dtype in ALL:
        for number, x in enumerate(layouts(numbers(dtype, positive=positive))):
            comparison.call(f"{dtype}, layout {number}", function, [x])
        comparison.call(f"{dtype}, no dimensions", function, [numbers(dtype, (), positive)])
        comparison.call(f"{dtype}, empty", function, [numbers(dtype, (0, 3), positive)])
    for dtype in (*FLOATING, *COMPLEX):
        comparison.call(f"{dtype}, gradient", function, [numbers(dtype, positive=positive)], gradients=True)
    comparison.call("many elements", function, [numbers(torch.float32, (70001,), positive)])
    comparison.conclude()


@check(level=Level.TRAINS, hook="pointwise kernels", cases=tuple(UNARY))
def unary_operator_follows_the_cpu(device: Device, case: str) -> None:
    """An operator of one tensor gives the CPU's values and dtypes for all dtypes and layouts, and its gradient.

    Half precision is compared with float64, within some units in the last place.
    """
    unary(device, case, UNARY[case], positive=False)


@check(level=Level.TRAINS, hook="pointwise kernels", cases=tuple(POSITIVE))
def operator_of_positive_numbers_follows_the_cpu(device: Device, case: str) -> None:
    """Logarithms, roots and their like give the CPU's values for positive numbers, and their gradients.

    They are separate because their values at other numbers are NaN, which would hide differences.
    """
    unary(device, case, POSITIVE[case], positive=True)


def binary(device: Device, function: Function, positive: bool) -> None:
    """Compares with a second argument that is positive, if it is a divisor."""
    comparison = Comparison(device, required=POINTWISE)
    for dtype in ALL:
        x = numbers(dtype)
        for number, y in enumerate(layouts(numbers(dtype, positive=positive, seed=1))):
            comparison.call(f"{dtype}, layout {number}", function, [x, y])
        for shape in ((6,), (5, 1), (), (1, 5, 6)):
            comparison.call(f"{dtype}, broadcast {shape}", function, [x, numbers(dtype, shape, positive, 2)])
    for first, second in (
        (torch.float32, torch.int64),
        (torch.int32, torch.int64),
        (torch.uint8, torch.int8),
        (torch.bool, torch.int16),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float16),
        (torch.complex64, torch.float64),
        (torch.int64, torch.float16),
    ):
        comparison.call(f"{first} and {second}", function, [numbers(first), numbers(second, positive=positive, seed=1)])
        if positive and first == torch.float16:
            continue  # whether the divisor is rounded to half precision is up to the device
        one = numbers(second, (), positive, 3)
        comparison.call(f"{first} and one {second}", function, [numbers(first), one])
    comparison.call("a number", lambda x: function(x, torch.tensor(2.5)), [numbers(torch.float16)])
    for dtype in (torch.float32, torch.float64, torch.complex64):
        pair = [numbers(dtype), numbers(dtype, (6,), positive, 4)]
        comparison.call(f"{dtype}, gradient", function, pair, gradients=True)
    comparison.conclude()


@check(level=Level.TRAINS, hook="pointwise kernels", cases=tuple(BINARY))
def binary_operator_follows_the_cpu(device: Device, case: str) -> None:
    """An operator of two tensors gives the CPU's values with broadcasting, promotion of dtypes, and gradients.

    PyTorch promotes dtypes by category: a tensor without dimensions does not raise the precision of one that has some.
    """
    binary(device, BINARY[case], positive=False)


@check(level=Level.TRAINS, hook="pointwise kernels", cases=tuple(DIVISIONS))
def division_follows_the_cpu(device: Device, case: str) -> None:
    """Divisions and remainders round as on the CPU, for negative numbers as well; integers give floating point.

    `remainder` has the sign of the divisor, `fmod` that of the dividend.
    """
    binary(device, DIVISIONS[case], positive=True)


def special(*values: float) -> torch.Tensor:
    return torch.tensor([0.0, -0.0, 1.5, -2.5, *values, float("nan"), float("inf"), float("-inf"), 1e30, 1e-30])


SPECIAL: dict[str, Function] = {
    **{name: getattr(torch, name) for name in "exp relu isnan isinf isfinite abs neg sqrt tanh nan_to_num".split()},
    "maximum": lambda x: torch.maximum(x[:, None], x),
    "minimum": lambda x: torch.minimum(x[:, None], x),
    "fmax": lambda x: torch.fmax(x[:, None], x),
    "add": lambda x: x[:, None] + x,
    "mul": lambda x: x[:, None] * x,
    "div": lambda x: x[:, None] / x,
    "eq": lambda x: x[:, None] == x,
    "lt": lambda x: x[:, None] < x,
    "clamp": lambda x: x.clamp(-1, 1),
    "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(),
    "sum": lambda x: x.sum(),
    "sort": lambda x: x.sort().values,
    "argmax": lambda x: x.argmax(),
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "nansum": lambda x: x[:7].nansum(),
    "signbit": lambda x: torch.signbit(x[:6]),
    "to_bool": lambda x: x.to(torch.bool),
    "cumsum": lambda x: x.cumsum(0),
}


@check(level=Level.TRAINS, hook="pointwise kernels", cases=tuple(SPECIAL))
def special_values_follow_the_cpu(device: Device, case: str) -> None:
    """NaN, infinities and negative zero have the CPU's results.

    `maximum`, `amax` and `sort` propagate NaN or put it last; kernels made of comparisons lose it.
    """
    comparison = Comparison(device)
    for dtype in (torch.float32, torch.float64):
        comparison.call(str(dtype), SPECIAL[case], [special().to(dtype)])
    comparison.conclude()


EXACT: dict[str, Function] = {
    "add": lambda x: x + 1,
    "mul": lambda x: x * 3,
    "sum": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "max": lambda x: torch.stack([x.max(), x.min()]),
    "compare": lambda x: x == x.flip(0) - 1,
    "floor_divide": lambda x: x // 7,
    "remainder": lambda x: x % 1000,
    "where": lambda x: torch.where(x > 0, x, x + 1),
    "sort": lambda x: x.sort(descending=True),
    "gather": lambda x: x.gather(0, torch.tensor([3, 0, 2], device=x.device)),
    "shift": lambda x: (x >> 3) ^ (x << 1),
    "item": lambda x: torch.tensor([x[1].item(), x[-1].item()], device=x.device),
    "fill": lambda x: torch.full_like(x, 2**62 + 3),
}


@check(level=Level.TRAINS, hook="kernels for int64", cases=tuple(EXACT))
def large_integers_are_exact(device: Device, case: str) -> None:
    """int64 values beyond 2**53 are exact.

    A kernel that computes integers in floating point, or truncates them to 32 bits, is right for small numbers only.
    """
    comparison = Comparison(device)
    comparison.call(
        "int64", EXACT[case], [torch.tensor([2**53 + 1, -(2**60) - 7, 2**31 + 5, 2**40 + 9, 2**53 + 2, -3])]
    )
    comparison.conclude()


@check(level=Level.TRAINS, hook="kernels for integers")
def integers_wrap_around(device: Device) -> None:
    """Sums and products of small integers wrap around in their dtype, and comparisons promote them before.

    uint8 has no negative values: 3 - 5 is 254.
    """
    comparison = Comparison(device)
    for dtype in INTEGRAL:
        limits = torch.iinfo(dtype)
        x = torch.tensor([limits.max, limits.min, 3, 5], dtype=dtype)
        functions: dict[str, Function] = {
            "add": lambda v: v + v,
            "mul": lambda v: v * 3,
            "sub": lambda v: v[2] - v,
            "sum": lambda v: v.sum(),
            "compare": lambda v: v > 3,
            "neg": lambda v: -v,
        }
        for name, function in functions.items():
            comparison.call(f"{dtype}, {name}", function, [x])
    comparison.conclude()


@check(level=Level.TRAINS, hook="pointwise kernels")
def three_tensors_follow_the_cpu(device: Device) -> None:
    """`where`, `addcmul`, `addcdiv`, `lerp` and `clamp` with tensors give the CPU's values and gradients.

    Each argument may be broadcast, and `where` promotes the dtypes of its values.
    """
    functions: dict[str, Function] = {
        "where": lambda x, y, z: torch.where(z > 0, x, y),
        "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
        "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z.abs() + 1, value=-2.0),
        "lerp": lambda x, y, z: torch.lerp(x, y, z),
        "clamp": lambda x, y, z: torch.clamp(x, y - 1, z.abs() + 2),
    }
    comparison = Comparison(device)
    for name, function in functions.items():
        for dtype in FLOATING:
            arguments: list[Any] = [
                numbers(dtype, seed=1),
                numbers(dtype, (6,), seed=2),
                numbers(dtype, (5, 1), seed=3),
            ]
            gradients = dtype in (torch.float32, torch.float64)
            comparison.call(f"{name}, {dtype}", function, arguments, gradients=gradients)
    mixed = [numbers(torch.float16), numbers(torch.float32, (6,)), numbers(torch.int64)]
    comparison.call("where, float16 and float32", functions["where"], mixed)
    comparison.conclude()
