"""The device has the CPU's dtypes and CUDA's: those that only CUDA has are computed in a wider one, and rounded.

All entries of PyTorch's operator database that have such dtypes, by the list in the database, are swept each time; of
the others, with the CPU's dtypes, one in 64, by a hash of the name (all with ``-m ""``). The sweep is the census's.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE
from slices import one_in
from torch.nn import functional as F
from torch.testing import assert_close

pytestmark = pytest.mark.any_device

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

SWEEP = str(Path(__file__).resolve().parents[2] / "census")
sys.path.insert(0, SWEEP)
checks, entries, expected = map(importlib.import_module, ("checks", "entries", "expected"))
sys.path.remove(SWEEP)

SAMPLES = 4


def cases(check: str) -> list[Any]:
    """Each entry that the census judges, with its cases of a check."""
    found = []
    for op in entries.op_db:
        todo = [case for case in entries.cases(op) if case.check == check and not entries.excepted(case)]
        if todo:
            found.append(one_in(1 if check == "dtypes" else 64, entries.entry_name(op), op, todo))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "todo"), cases("dtypes"))
def test_dtypes_that_only_cuda_has(op, todo):
    assert not expected.unexpected([checks.run_check(op, case, SAMPLES) for case in todo])
    assert all(case.samples for case in todo)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "todo"), cases("values"))
def test_dtypes_of_the_cpu(op, todo):
    assert not expected.unexpected([checks.run_check(op, case, SAMPLES) for case in todo])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_a_histogram_of_integers_counts_by_integer_division(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 5, 9, 10, 29, 57, 99, 100], dtype=dtype, device=DEVICE)
    assert x.histc(100, 0, 100).nonzero().flatten().tolist() == [0, 1, 5, 9, 10, 29, 57, 99]
    counts = x.histc(4)
    assert counts.tolist() == [5 + 0, 1, 1, 2] and counts.dtype == dtype
    assert x.histc(2, 1, 9).tolist() == [1, 2]
    assert torch.full((3,), 4, dtype=dtype, device=DEVICE).histc(2).tolist() == [0, 3]
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    torch.histc(x, 2, 0, 100, out=out)
    assert out.tolist() == [6, 3]
    with pytest.raises(RuntimeError, match="bins must be"):
        x.histc(0)


def test_truth_has_an_absolute_value_and_a_trace() -> None:
    x = torch.tensor([[True, False], [False, True]], device=DEVICE)
    assert torch.equal(x.abs(), x)
    assert x.trace().item() == 2 and x.trace().dtype == torch.int64


def test_a_sum_of_complex_numbers_leaves_out_what_is_none() -> None:
    x = torch.tensor([[1 + 1j, complex("nan")], [2, 3j]], device=DEVICE, requires_grad=True)
    x.nansum().abs().backward()
    assert x.nansum().item() == 3 + 4j
    assert x.nansum(0, keepdim=True).tolist() == [[3 + 1j, 3j]]
    assert x.grad[0, 1] == 0 and x.grad[0, 0] != 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_are_reduced_in_half_precision(dtype: torch.dtype) -> None:
    x = torch.rand(1, 3, 16, 16)
    for mode in ("bilinear", "bicubic"):
        expected = F.interpolate(x, (5, 7), mode=mode, antialias=True)
        found = F.interpolate(x.to(DEVICE, dtype), (5, 7), mode=mode, antialias=True)
        assert found.dtype == dtype
        assert_close(found.float().cpu(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x / (1 + 2j),
        lambda x: (1 + 2j) / x,
        lambda x: x ** (1 + 2j),
        lambda x: (1 + 2j) ** x,
        lambda x: x / (x * 1j + 1),
        lambda x: (x * 1j + 1) / x,
        lambda x: x ** (x * 1j),
        lambda x: torch.lerp(x * 1j, x * 1j + 1, 0.25),
    ],
    ids=["x / c", "c / x", "x ** c", "c ** x", "x / z", "z / x", "x ** z", "lerp"],
)
def test_real_numbers_beside_complex_ones_of_half_precision(work: Any) -> None:
    x = torch.tensor([0.5, 1, 2], dtype=torch.float16)
    limit = 4e-3
    for _ in range(3):
        got = work(x.to(DEVICE))
        assert got.dtype == torch.complex32
        assert_close(got.cpu().to(torch.complex64), work(x.float()), rtol=limit, atol=limit)


def test_half_precision_is_refused_where_cuda_refuses_it() -> None:
    with pytest.raises(RuntimeError, match="not implemented for"):
        torch.linalg.det(torch.ones(2, 2, device=DEVICE, dtype=torch.float16))
