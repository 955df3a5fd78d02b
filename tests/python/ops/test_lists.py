"""Operators on lists of tensors: one command each, whose cost for a tensor does not depend on their number."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from waits import launches, no_waits

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]

Tensors = list[torch.Tensor]


def on_device(tensors: Tensors) -> Tensors:
    return [tensor.to(DEVICE) for tensor in tensors]


def numbered(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    return [torch.randn(shape).mul(9).to(dtype) for shape in shapes]


# Lists, and the dimension along which they are joined.
LISTS: dict[str, tuple[Callable[[], Tensors], int]] = {
    "vectors": (lambda: numbered(*[(n % 5 + 1,) for n in range(60)]), 0),
    "rows": (lambda: numbered(*[(n % 3 + 1, 4) for n in range(40)]), 0),
    "columns": (lambda: numbered(*[(4, n % 3 + 1) for n in range(40)]), -1),
    "in the middle": (lambda: numbered(*[(2, n % 3, 5) for n in range(40)]), 1),
    "one": (lambda: numbered((3, 4)), 0),
    "some without elements": (lambda: numbered(*[(n % 2, 3) for n in range(9)]), 0),
    "all without elements": (lambda: numbered((0, 3), (0, 3)), 0),
    "legacy empty ones": (lambda: numbered((0,), (2, 3), (0,), (1, 3)), 0),
    "integers": (lambda: numbered(*[(3,)] * 30, dtype=torch.int16), 0),
    "complex": (lambda: numbered(*[(3,)] * 30, dtype=torch.complex64), 0),
    "conjugated": (lambda: [t.conj() for t in numbered(*[(3,)] * 30, dtype=torch.complex64)], 0),
    "of several dtypes": (lambda: numbered((3,), (4,)) + numbered((2,), dtype=torch.int64), 0),
    "views": (lambda: [t.t() for t in numbered(*[(3, 4)] * 20)], 0),
    "expanded": (lambda: [t.expand(2, 3) for t in numbered(*[(1, 3)] * 20)], 0),
    "slices of one tensor": (lambda: list(torch.randn(20, 3).unbind()), 0),
    "the same one": (lambda: numbered((3,)) * 30, 0),
    "channels last": (lambda: [t.to(memory_format=torch.channels_last) for t in numbered(*[(2, 3, 4, 5)] * 3)], 1),
    "large": (lambda: numbered((1000, 30), (1000, 70)), 1),
    "many rows without elements": (lambda: numbered((10**6, 0), (10**6, 0)), 1),
    "many": (lambda: numbered(*[(8,)] * 3000), 0),
}


@pytest.mark.parametrize("name", LISTS)
def test_cat_equals_the_cpu(name):
    make, dim = LISTS[name]
    given = make()
    moved = on_device(given)
    if name in ("slices of one tensor", "the same one"):
        moved = list(torch.stack(given).to(DEVICE).unbind()) if "slices" in name else [moved[0]] * len(given)
    if name == "conjugated":
        moved = [t.conj().to(DEVICE).conj() for t in given]
    expected = torch.cat(given, dim)
    for _ in range(2):  # the second call knows its plan
        with no_waits():
            got = torch.cat(moved, dim)
        assert got.stride() == expected.stride() and got.dtype == expected.dtype
        assert torch.equal(got.cpu(), expected)
    out = torch.empty(expected.shape, dtype=expected.dtype, device=DEVICE)
    assert torch.cat(moved, dim, out=out) is out
    assert torch.equal(out.cpu(), expected)


def test_cat_refuses_an_output_that_is_an_input():
    for device in ("cpu", DEVICE):
        base = torch.ones(6, device=device)
        with pytest.raises(RuntimeError, match="memory location"):
            torch.cat([base[:3], base[3:]], out=base)


@pytest.mark.openreg_only
def test_cat_in_a_graph_reads_the_tensors_at_each_replay():
    given = numbered(*[(8,)] * 50)
    moved = on_device(given)
    torch.accelerator.synchronize()
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        result = torch.cat(moved)
    for _ in range(3):
        for ours, theirs in zip(moved, given, strict=True):
            ours.add_(1)
            theirs.add_(1)
        graph.replay()
        assert torch.equal(result.cpu(), torch.cat(given))


UNARY = (
    *(
        "abs",
        "acos",
        "asin",
        "atan",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "expm1",
        "floor",
        "frac",
        "lgamma",
        "log",
    ),
    *("log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan"),
    *("tanh", "trunc", "zero"),
)
IN_PLACE: dict[str, Callable[[Tensors, Tensors, Tensors], object]] = {
    **{f"{name}_": (lambda a, b, c, name=name: getattr(torch, f"_foreach_{name}_")(a)) for name in UNARY},
    **{
        f"{name}_ of a {kind}": (
            lambda a, b, c, name=name, kind=kind: getattr(torch, f"_foreach_{name}_")(a, 0.5 if kind == "number" else b)
        )
        for name in ("add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow")
        for kind in ("number", "list")
    },
    "add_ with alpha": lambda a, b, c: torch._foreach_add_(a, b, alpha=3),
    "addcmul_": lambda a, b, c: torch._foreach_addcmul_(a, b, c, 0.5),
    "addcdiv_": lambda a, b, c: torch._foreach_addcdiv_(a, b, c, 0.5),
    "lerp_ by a number": lambda a, b, c: torch._foreach_lerp_(a, b, 0.3),
    "lerp_ by a list": lambda a, b, c: torch._foreach_lerp_(a, b, c),
    "mul_ by a tensor": lambda a, b, c: torch._foreach_mul_(a, b[0][0, 0]),
    "mul_ by a tensor of the CPU": lambda a, b, c: torch._foreach_mul_(a, torch.tensor(3.0)),
}


@pytest.mark.openreg_only
@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_on_lists_in_place_are_one_command(name):
    shapes = [(n % 4 + 1, 3) for n in range(12)]
    given = [[torch.rand(shape) + 0.1 for shape in shapes] for _ in range(3)]
    moved = [on_device(each) for each in given]
    IN_PLACE[name](*given)
    IN_PLACE[name](*moved)
    assert_close([t.cpu() for t in moved[0]], given[0], equal_nan=True)
    with no_waits():
        stats = launches(lambda: IN_PLACE[name](*moved))
    assert stats["boxed"] == 1 and stats["typed"] == 0, stats


# What is added, or multiplied by, to a list: exactly as on the CPU, also if it is computed without ATen.
OPERANDS: dict[str, Callable[[Tensors], object]] = {
    "1": lambda _: 1,
    "a large integer": lambda _: 2**53 + 1,
    "a fraction": lambda _: 1 / 3,
    "zero": lambda _: 0,
    "infinity": lambda _: float("inf"),
    "a number beyond single precision": lambda _: 1e300,
    "a list": lambda tensors: [t.flip(-1) + 1 for t in tensors],
    "the list itself": lambda tensors: tensors,
    "a list of integers": lambda tensors: [torch.ones_like(t, dtype=torch.int32) for t in tensors],
    "a tensor": lambda tensors: torch.tensor(0.7, dtype=tensors[0].dtype, device=tensors[0].device),
    "an integer tensor": lambda tensors: torch.tensor(3, device=tensors[0].device),
    "one of their elements": lambda tensors: tensors[1].flatten()[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("left_to_pytorch", [False, True])
def test_small_tensors_of_a_list_are_computed_as_on_the_cpu(left_to_pytorch, name, operand, dtype):
    in_place = getattr(torch, f"_foreach_{name}_")
    shapes = [(1,), (3,), (0,), (17,), (2, 33), (1000,)]
    given = numbered(*shapes, dtype=dtype)
    given[0][0] = 1e-39 if dtype == torch.float32 else 0
    outcomes = []
    for device in ("cpu", DEVICE):
        tensors = [t.to(device, copy=True) for t in given]
        if left_to_pytorch:  # one stands in the list twice, and another is not contiguous
            tensors += [tensors[1], torch.ones(4, 6, dtype=dtype, device=device)[:, ::2]]
        other = OPERANDS[operand](tensors)
        try:
            for _ in range(2):  # the second call knows its plan
                in_place(tensors, other)
        except RuntimeError as error:
            outcomes.append(str(error).replace(DEVICE, "cpu"))
        else:
            outcomes.append([t.cpu() for t in tensors])
    if isinstance(outcomes[0], str):
        assert outcomes[1] == outcomes[0]
    else:
        assert_close(outcomes[1], outcomes[0], rtol=0, atol=0, equal_nan=True)


# Operators whose vectors and single elements give the same bits: their small tensors are computed together.
JOINED = (
    *(f"{name}_" for name in ("abs", "ceil", "floor", "frac", "neg", "reciprocal", "round", "rsqrt", "sqrt", "trunc")),
    *("zero_", "add_ with alpha", "addcmul_", "addcdiv_", "lerp_ by a number", "lerp_ by a list"),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", JOINED)
def test_small_tensors_that_are_joined_have_the_bits_of_the_cpu(name, dtype):
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-39, 2.5, -3.5], dtype=dtype)
    shapes = [(), (1,), (3,), (0,), (17,), (2, 33), (1000,), (5, 7, 3)]
    given = [[*numbered(*shapes, dtype=dtype), special.roll(n)] for n in range(3)]
    moved = [on_device(each) for each in given]
    for _ in range(2):  # the second call knows its plan
        IN_PLACE[name](*given)
        IN_PLACE[name](*moved)
    got, expected = (torch.cat([t.cpu().flatten() for t in tensors]) for tensors in (moved[0], given[0]))
    numbers = ~expected.isnan()
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    assert torch.equal(~got.isnan(), numbers)
    assert torch.equal(got[numbers].view(bits), expected[numbers].view(bits))


@pytest.mark.full
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_so_they_have_with_other_instructions_of_the_processor(capability):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "have_the_bits", __file__]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("flushes", [True, False])
def test_denormal_numbers_in_lists_are_flushed_if_the_caller_does(flushes):
    tiny = torch.full((5,), 1e-39, device=DEVICE)
    try:
        for _ in range(2):  # the second call knows its plan
            torch.set_flush_denormal(not flushes)
            values = [tiny.clone()]
            torch.set_flush_denormal(flushes)
            torch._foreach_mul_(values, 2.0)
        done = torch.Event(DEVICE)
        done.record()
        while not done.query():  # a host that waits may compute, in its own mode
            pass
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(values[0].cpu(), torch.full((5,), 0.0 if flushes else 2e-39))


@pytest.mark.openreg_only
def test_numbers_that_change_take_no_new_plan():
    tensors = on_device(numbered(*[(3,)] * 4))
    torch._foreach_mul_(tensors, 0.5)
    torch.openreg.reset_launch_stats()
    for number in (0.25, 0.75, 0.125):
        torch._foreach_mul_(tensors, number)
    assert torch.openreg.launch_stats()["plans_made"] == 0


def test_a_list_may_be_on_several_devices_and_the_cpu():
    given = numbered(*[(3,)] * 3)
    moved = [t.clone().to(device) for t, device in zip(given, (f"{DEVICE}:0", f"{DEVICE}:1", "cpu"), strict=True)]
    torch._foreach_mul_(moved, 2.0)
    assert_close([t.cpu() for t in moved], [t * 2 for t in given])
    number = [given[0].to(DEVICE), torch.tensor(3.0)]
    torch._foreach_mul_(number, 2.0)
    assert_close([t.cpu() for t in number], [given[0] * 2, torch.tensor(6.0)])


@pytest.mark.openreg_only
def test_an_optimizer_launches_few_commands():
    parameters = [torch.nn.Parameter(torch.ones(8, device=DEVICE)) for _ in range(50)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    for fused, most in (
        (True, 2),
        (None, 160),
    ):  # square roots are new tensors, and two operators take lists of numbers
        optimizer = torch.optim.AdamW(parameters, fused=fused)
        stats = launches(optimizer.step)
        assert stats["typed"] + stats["boxed"] <= most
