"""Products of groups of matrices, whose ends are on the device."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.testing import assert_close

GROUPS = 3
M, K, N = 24, 16, 8


pytestmark = pytest.mark.usefixtures("seeded")


# The shapes of the factors, and where groups end in the dimension that they share; one group is empty.
CASES = {
    "rows": ((M, K), (GROUPS, K, N), [8, 8, M]),
    "columns": ((GROUPS, M, K), (K, N), [3, 3, N]),
    "sums": ((M, K), (K, N), [7, 7, K]),
    "batches": ((GROUPS, M, K), (GROUPS, K, N), None),
}


def factors(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    shape_a, shape_b, ends = CASES[name]
    a = torch.randn(shape_a)
    b = torch.randn(shape_b).mT.contiguous().mT  # column major, as float8 wants it
    return a, b, None if ends is None else torch.tensor(ends, dtype=torch.int32)


def to_device(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [t if t is None else t.to(DEVICE, non_blocking=True) for t in tensors]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_of_groups_equal_the_cpus(name, dtype, no_waits):
    a, b, ends = factors(name)
    a, b = a.to(dtype), b.to(dtype)
    expected = F.grouped_mm(a, b, offs=ends)
    device_a, device_b, device_ends = to_device(a, b, ends)
    got = F.grouped_mm(device_a, device_b, offs=device_ends)
    torch.openreg.set_sync_debug_mode("default")
    assert got.stride() == expected.stride()
    assert_close(got.cpu(), expected)


@pytest.mark.parametrize("name", ["rows", "batches"])
def test_gradients_equal_the_cpus(name, no_waits):
    def gradients(a, b, ends):
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        y = F.grouped_mm(a, b, offs=ends)
        y.backward(torch.ones_like(y).cumsum(0))
        return a.grad, b.grad

    case = factors(name)
    device_case = to_device(*case)
    got = gradients(*device_case)
    torch.openreg.set_sync_debug_mode("default")
    for g, e in zip(got, gradients(*case), strict=True):
        assert_close(g.cpu(), e)


def scales(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    shape_a, shape_b, _ = CASES[name]
    if name == "sums":
        return torch.rand(GROUPS * M), torch.rand(GROUPS * N)
    return torch.rand(*shape_a[:-2], shape_a[-2]), torch.rand(*shape_b[:-2], shape_b[-1])


def scaled_by_groups(name: str, a, b, scale_a, scale_b) -> torch.Tensor:
    """Group by group, in float64."""
    a, b, scale_a, scale_b = (t.double() for t in (a, b, scale_a, scale_b))
    ends = CASES[name][2]
    if ends is None:
        return (a * scale_a[:, :, None]) @ (b * scale_b[:, None, :])
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    if name == "rows":
        return torch.cat(
            [(a[p] * scale_a[p, None]) @ (b[g] * scale_b[g]) for g, p in enumerate(parts)],
        )
    if name == "columns":
        return torch.cat([(a[g] * scale_a[g, :, None]) @ (b[:, p] * scale_b[p]) for g, p in enumerate(parts)], 1)
    scale_a, scale_b = scale_a.view(GROUPS, M), scale_b.view(GROUPS, N)
    return torch.stack([(a[:, p] @ b[p]) * scale_a[g, :, None] * scale_b[g] for g, p in enumerate(parts)])


@pytest.mark.parametrize("name", CASES)
def test_products_of_float8_are_scaled_by_rows(name, no_waits):
    a, b, ends = factors(name)
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    if name == "columns":  # 16 bytes apart
        b = torch.randn(N, K).to(torch.float8_e4m3fn).t()
    by = scales(name)
    expected = scaled_by_groups(name, a, b, *by).bfloat16()
    device = to_device(a, b, *by)
    device_ends = to_device(ends)[0]
    got = torch._scaled_grouped_mm(*device, offs=device_ends)
    by_recipe = F.scaled_grouped_mm(
        *device[:2], device[2], F.ScalingType.RowWise, device[3], F.ScalingType.RowWise, offs=device_ends
    )
    torch.openreg.set_sync_debug_mode("default")
    assert got.dtype == torch.bfloat16
    assert_close(got.cpu(), expected, rtol=1e-2, atol=1e-2)
    assert torch.equal(by_recipe, got)


ones = functools.partial(torch.ones, device=DEVICE)


def float8(*shape: int) -> torch.Tensor:
    return ones(*shape).to(torch.float8_e4m3fn)


ENDS = torch.tensor([8, 16, 24], dtype=torch.int32)


@pytest.mark.any_device
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.grouped_mm(ones(M, K), ones(GROUPS, K, N)), RuntimeError, "Have to provide offsets"),
        (lambda: F.grouped_mm(ones(M, K), ones(2, K, N), offs=ENDS.to(DEVICE)), RuntimeError, "batch sizes"),
        (lambda: F.grouped_mm(ones(M, K), ones(GROUPS, K, N), offs=ENDS.long().to(DEVICE)), RuntimeError, "int32"),
        (lambda: F.grouped_mm(ones(M, K), ones(GROUPS, K, N), offs=ENDS), RuntimeError, "same device"),
        (lambda: F.grouped_mm(ones(2, M, K).long(), ones(2, K, N).long()), RuntimeError, "Expected mat_a to be"),
        (lambda: F.grouped_mm(ones(2, M, K), ones(2, K, N).half()), RuntimeError, "to have the same dtype"),
        (
            lambda: torch._scaled_grouped_mm(float8(2, M, K), ones(2, N, K).mT, ones(2, M), ones(2, N)),
            RuntimeError,
            "Expected inputs of E4M3 FP8 type",
        ),
        (
            lambda: torch._scaled_grouped_mm(float8(2, M, K), float8(2, K, N), ones(2, M), ones(2, N)),
            RuntimeError,
            "column major",
        ),
        (
            lambda: torch._scaled_grouped_mm(float8(2, M, K), float8(2, N, K).mT, ones(2, 3), ones(2, N)),
            RuntimeError,
            "Expected scale_a non-batch dimension to be 24, got 3",
        ),
        (
            lambda: F.scaled_grouped_mm(
                float8(2, M, K),
                float8(2, N, K).mT,
                ones(2, M),
                F.ScalingType.BlockWise1x32,
                ones(2, N),
                F.ScalingType.BlockWise1x32,
            ),
            NotImplementedError,
            "takes scales of rows only",
        ),
        (
            lambda: F.scaled_grouped_mm(
                float8(2, M, K),
                float8(2, N, K).mT,
                ones(2, M),
                F.ScalingType.RowWise,
                ones(2, N),
                F.ScalingType.RowWise,
                contraction_dim=[1, 1],
            ),
            ValueError,
            "contraction dimensions of mat_a and mat_b must match",
        ),
    ],
)
def test_wrong_arguments_raise_at_the_call(call, error, message):
    with pytest.raises(error, match=message):
        call()
