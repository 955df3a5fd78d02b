"""Operators that are slow in dtypes of half precision: computed in float32, and rounded once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]

Operands = list[torch.Tensor]


def operands(*shapes: tuple[int, ...]) -> Callable[[], Operands]:
    return lambda: [torch.randn(shape) for shape in shapes]


# Each with the tensors that it takes.
CALLS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], Operands]]] = {
    "mm": (torch.mm, operands((37, 65), (65, 29))),
    "mm, both transposed": (lambda a, b: a.t() @ b.t(), operands((65, 37), (29, 65))),
    "mm of every second row": (lambda a, b: a[::2] @ b[:, ::2], operands((74, 65), (65, 58))),
    "mm of one repeated row": (lambda a, b: a.expand(37, 65) @ b, operands((1, 65), (65, 29))),
    "mm with itself": (lambda a: a @ a.t(), operands((37, 65))),
    "bmm": (torch.bmm, operands((3, 17, 33), (3, 33, 9))),
    "bmm with one repeated matrix": (lambda a, b: a @ b.expand(3, 33, 9), operands((3, 17, 33), (33, 9))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), operands((29,), (37, 65), (65, 29))),
    "addmm in place": (lambda c, a, b: c.clone().addmm_(a, b), operands((37, 29), (37, 65), (65, 29))),
    "addmm with a view": (lambda c, a, b: c.clone()[::2].addmm_(a, b), operands((74, 29), (37, 65), (65, 29))),
    "baddbmm": (torch.baddbmm, operands((3, 17, 9), (3, 17, 33), (3, 33, 9))),
    "addbmm": (torch.addbmm, operands((17, 9), (3, 17, 33), (3, 33, 9))),
    "linear": (F.linear, operands((5, 7, 33), (19, 33), (19,))),
    "conv1d": (F.conv1d, operands((2, 6, 40), (8, 6, 3), (8,))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), operands((2, 6, 14, 15), (8, 6, 3, 3), (8,))),
    "conv2d, channels last": (
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w),
        operands((2, 6, 14, 15), (8, 6, 3, 3)),
    ),
    "conv2d of groups": (lambda x, w: F.conv2d(x, w, groups=3, dilation=2), operands((2, 6, 14, 15), (9, 2, 3, 3))),
    "conv3d": (F.conv3d, operands((1, 3, 6, 7, 8), (4, 3, 3, 3, 3))),
    "attention": (F.scaled_dot_product_attention, operands(*[(2, 3, 33, 16)] * 3)),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        operands(*[(2, 3, 33, 16)] * 3),
    ),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), operands((2, 6, 7, 8), (6, 5, 3, 3))),
}


def fractions(*shapes: tuple[int, ...]) -> Callable[[], Operands]:
    return lambda: [torch.rand(shape) * 0.9 + 0.05 for shape in shapes]


# Those whose kernels are scalar on every processor, for both dtypes.
SCALAR: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], Operands]]] = {
    "matrix_exp": (torch.linalg.matrix_exp, lambda: [torch.randn(3, 9, 9) * 0.1]),
    "erfinv": (torch.erfinv, fractions((33, 17))),
    "erfinv in place": (lambda x: x.clone().erfinv_(), fractions((33, 17))),
    "erfinv of every second row": (lambda x: x[::2].erfinv(), fractions((33, 17))),
    "var": (torch.var, operands((33, 17))),
    "var of columns": (lambda x: x.var(0, correction=0), operands((33, 17))),
    "std": (lambda x: x.std((0, 2), keepdim=True), operands((5, 33, 17))),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), operands((2, 3, 5, 6, 7))),
    "binary_cross_entropy": (F.binary_cross_entropy, fractions((33, 17), (33, 17))),
    "grid_sample": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        operands((2, 3, 8, 9), (2, 5, 6, 2)),
    ),
    "grid_sample of volumes": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=True),
        operands((1, 3, 4, 5, 6), (1, 3, 3, 3, 3)),
    ),
}

ALL = {**CALLS, **SCALAR}

# As HalfInstructions::here() in cpp/ops/launch/half_precision.cpp: then PyTorch's kernels of float16 are not scalar.
COMPUTES_FLOAT16 = "avx512_fp16" in Path("/proc/cpuinfo").read_text()
CASES = [(name, torch.float16) for name in CALLS] + [
    (name, dtype) for name in SCALAR for dtype in (torch.float16, torch.bfloat16)
]


def results(
    call: Callable[..., torch.Tensor], given: Operands, device: str, half: torch.dtype, dtype: torch.dtype
) -> Operands:
    """What the call returns and the gradients of its sum of squares, all on the CPU; numbers are those of `half`."""
    leaves = [tensor.to(half).to(device, dtype).requires_grad_() for tensor in given]
    result = call(*leaves)
    grad = torch.linspace(-1, 1, result.numel()).to(half).view(result.shape).to(device, dtype)
    return [t.detach().cpu() for t in (result, *torch.autograd.grad(result, leaves, grad))]


@pytest.mark.parametrize(("name", "half"), CASES)
def test_it_is_at_least_as_accurate_as_on_the_cpu(name, half):
    call, make = ALL[name]
    given = make()
    exact = results(call, given, "cpu", half, torch.float64)
    on_cpu = results(call, given, "cpu", half, half)
    got = results(call, given, DEVICE, half, half)
    for ours, theirs, value in zip(got, on_cpu, exact, strict=True):
        assert ours.dtype == half and ours.shape == value.shape
        rounded = (value.to(half).double() - value).square().sum()  # the least possible error
        error, theirs_error = ((each.double() - value).square().sum() for each in (ours, theirs))
        allowed = max(theirs_error.nan_to_num(0, posinf=0), rounded)  # matrix_exp may end in NaN on the CPU
        assert error <= 1.01 * allowed


@pytest.mark.parametrize(("name", "half"), CASES)
def test_it_is_rounded_once(name, half):
    call, make = ALL[name]
    given = [tensor.to(half) for tensor in make()]
    in_float = call(*(tensor.to(DEVICE, torch.float32) for tensor in given)).to(half)
    got = call(*(tensor.to(DEVICE) for tensor in given))
    if name in CALLS and COMPUTES_FLOAT16:  # by PyTorch's kernel, which may round more often
        torch.testing.assert_close(got.cpu(), call(*given))
    elif "linear" in name or "with" in name or "repeated" in name:  # other sums in between
        torch.testing.assert_close(got, in_float)
    else:
        assert torch.equal(got, in_float)


@pytest.mark.openreg_only
@pytest.mark.parametrize("name", SCALAR)
def test_replays_are_rounded_once_too(name):
    call, make = SCALAR[name]
    given = [tensor.to(DEVICE, torch.bfloat16) for tensor in make()]
    with torch.openreg.stream(torch.Stream()):
        expected = call(*given)
    torch.accelerator.synchronize()
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        result = call(*given)
    for _ in range(3):
        result.zero_()
        graph.replay()
        assert torch.equal(result, expected)


def test_float16_has_the_strides_of_float32():
    x = torch.randn(2, 6, 14, 15, device=DEVICE).to(memory_format=torch.channels_last)
    weight = torch.randn(8, 6, 3, 3, device=DEVICE)
    for work in (
        lambda x, w: F.conv2d(x, w),
        lambda x, w: F.conv2d(x.contiguous(), w),
        lambda x, w: x[0, 0] @ x[0, 0].t(),
    ):
        assert work(x, weight).stride() == work(x.half(), weight.half()).stride()


SAMPLES_OF_PYTORCH = """
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map
for op in op_db:
    if op.name.startswith("nn.functional.conv"):
        for sample in list(op.sample_inputs("cpu", torch.float16)) * 3:
            given = (sample.input, sample.args, sample.kwargs)
            given = tree_map(lambda t: t.to("openreg") if isinstance(t, torch.Tensor) else t, given)
            op(given[0], *given[1], **given[2]).cpu()
"""


@pytest.mark.openreg_only
def test_a_widened_kernel_stays_within_its_memory():
    """It allocates other memory than the kernel of float16 that was probed for its results."""
    environment = {**os.environ, "MALLOC_CHECK_": "3"}
    subprocess.run([sys.executable, "-c", SAMPLES_OF_PYTORCH], env=environment, check=True, timeout=300)


def test_autocast_trains_in_float16():
    """As on a GPU, where float16 is the default of autocast."""

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 6 * 6, 4)
        ).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(8, 3, 8, 8).to(device), torch.randint(4, (8,)).to(device)
        scaler = torch.amp.GradScaler(device)
        found = []
        for _ in range(5):
            with torch.autocast(device, dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    torch.testing.assert_close(losses(DEVICE), losses("cpu"), rtol=1e-2, atol=1e-2)
