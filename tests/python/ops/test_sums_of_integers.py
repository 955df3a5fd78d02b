"""Sums of bool and of integers of 8 and 16 bits, which have a kernel of their own."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16]
SHAPES = [
    (),
    (0,),
    (5,),
    (3, 4),
    (2, 1, 3, 5),
    (0, 3),
    (3, 0),
    (140000,),
    (3, 70000),
    (70000, 3),
    (2, 2100, 2),
    (2, 3, 1100),
]


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, shape, dtype=torch.int64).to(dtype)


def check(x: torch.Tensor, on_device: torch.Tensor) -> None:
    for count in range(x.dim() + 1):
        for dims in combinations(range(x.dim()), count):
            expected = x.sum(dims)
            got = on_device.sum(dims)
            assert (got.dtype, got.shape) == (torch.int64, expected.shape)
            assert torch.equal(got.cpu(), expected)
            assert torch.equal(on_device.sum(dims, keepdim=True).cpu(), x.sum(dims, keepdim=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_over_any_dimensions(shape, dtype):
    x = numbers(shape, dtype)
    check(x, x.to(DEVICE))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_views(dtype):
    x = numbers((6, 5, 4), dtype)
    on_device = x.to(DEVICE)
    for view in (
        lambda x: x.mT,
        lambda x: x[1:, :, 1:],
        lambda x: x[:, ::2],
        lambda x: x[:1].expand(3, 5, 4),
        lambda x: x[2:],
    ):
        check(view(x), view(on_device))


@pytest.mark.parametrize(("dtype", "count"), [(torch.int16, 1 << 17), (torch.uint8, 1 << 24), (torch.int8, 1 << 25)])
def test_of_numbers_whose_sum_does_not_fit_into_32_bits(dtype, count):
    limits = torch.iinfo(dtype)
    x = torch.full((count // 8, 8), limits.min or limits.max, dtype=dtype)
    on_device = x.to(DEVICE)
    for dims in ((0, 1), (0,)):
        assert torch.equal(on_device.sum(dims).cpu(), x.sum(dims))
    assert x.sum().abs() > torch.iinfo(torch.int32).max


def test_bytes_that_are_not_one_are_true():
    x = torch.tensor([[2, 3, 0, 1], [255, 0, 128, 0]] * 8, dtype=torch.uint8)
    on_device = x.to(DEVICE).view(torch.bool)
    check(x.view(torch.bool), on_device)
    check(x.view(torch.bool).t().contiguous(), on_device.t().contiguous())


def test_into_an_output():
    x = numbers((300, 40), torch.int8)
    on_device = x.to(DEVICE)
    for out in (torch.empty(40, dtype=torch.int64), torch.empty(40, 2, dtype=torch.int64)[:, 0], torch.empty(40)):
        columns = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=DEVICE)
        assert torch.equal(torch.sum(on_device, 0, out=columns).cpu(), torch.sum(x, 0, out=out))
    assert torch.equal(on_device.sum(1, dtype=torch.int32).cpu(), x.sum(1, dtype=torch.int32))


@pytest.mark.openreg_only
def test_in_a_graph():
    x = torch.zeros(300, 40, dtype=torch.int8, device=DEVICE)
    torch.accelerator.synchronize()
    with torch.openreg.stream(torch.Stream()):
        x.sum(0)
    torch.accelerator.synchronize()
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        columns = x.sum(0)
    for _ in range(2):
        new = numbers((300, 40), torch.int8)
        x.copy_(new)
        graph.replay()
        assert torch.equal(columns.cpu(), new.sum(0))
