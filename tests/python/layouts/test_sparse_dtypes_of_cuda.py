"""Sparse tensors of dtypes and layouts for which CUDA has kernels and the CPU has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device

HALF = [torch.float16, torch.bfloat16, torch.complex32]
LIMITS = {"rtol": 2e-2, "atol": 2e-2}


def matrices(dtype: torch.dtype, layout: torch.layout) -> list[torch.Tensor]:
    """Two, of different patterns, with small whole numbers."""
    numbers = torch.arange(16).view(4, 4)
    dense = [((numbers % divisor == 0) * (numbers % 3 - 1)).to(dtype).to(DEVICE) for divisor in (2, 3)]
    sparse = [each.to_sparse() for each in dense]
    return [each.to_sparse_csr() for each in sparse] if layout == torch.sparse_csr else sparse


def wide(x: torch.Tensor) -> torch.Tensor:
    """A dense tensor on the CPU, in a dtype that it computes in."""
    types = {torch.complex32: torch.complex64, torch.bool: torch.bool}
    return x.cpu().to_dense().to(types.get(x.dtype, torch.float32))


def compare(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, **limits: float) -> None:
    assert found.device.type == DEVICE and found.dtype == dtype
    assert_close(wide(found), expected, **limits)


@pytest.mark.parametrize("dtype", [*HALF, torch.bool], ids=str)
@pytest.mark.parametrize("function", [torch.add, torch.sub, torch.mul], ids=lambda each: each.__name__)
def test_sums_and_products_of_elements(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    a, b = matrices(dtype, torch.sparse_coo)
    if function is torch.sub and dtype == torch.bool:
        with pytest.raises(RuntimeError, match="two bool tensors"):
            function(a, b)
        return
    expected = function(wide(a), wide(b))
    compare(function(a, b), expected, dtype)
    out = torch.zeros(4, 4, dtype=dtype, device=DEVICE).to_sparse()
    assert function(a, b, out=out) is out
    compare(out, expected, dtype)
    changed = a.clone()
    assert getattr(changed, f"{function.__name__}_")(b) is changed
    compare(changed, expected, dtype)


@pytest.mark.parametrize("dtype", [*HALF, torch.bool], ids=str)
def test_products_of_elements_in_rows(dtype: torch.dtype) -> None:
    a, b = matrices(dtype, torch.sparse_csr)
    expected = wide(a) * wide(b)
    compare(a * b, expected, dtype)
    compare(a.clone().mul_(b), expected, dtype)


def test_a_dense_summand_and_another_dtype() -> None:
    a, b = matrices(torch.float16, torch.sparse_coo)
    dense = a.to_dense()
    compare(dense + b, wide(a) + wide(b), torch.float16)
    compare(dense.clone().add_(b, alpha=2), wide(a) + 2 * wide(b), torch.float16)
    compare(a + b.float(), wide(a) + wide(b), torch.float32)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("name", ["sin", "asinh", "sqrt", "tan", "sum"])
def test_functions_of_complex_numbers_of_half_precision(name: str, layout: torch.layout) -> None:
    a, _ = matrices(torch.complex32, layout)
    compare(getattr(a, name)(), getattr(wide(a), name)(), torch.complex32, **LIMITS)
    if name != "sum":
        compare(getattr(a.clone(), f"{name}_")(), getattr(wide(a), name)(), torch.complex32, **LIMITS)


def test_repeated_indices_are_added() -> None:
    indices, values = torch.tensor([[0, 0, 2]]), torch.tensor([1, 2, 3], dtype=torch.complex32)
    added = torch.sparse_coo_tensor(indices, values, (3,), device=DEVICE).coalesce()
    assert added.is_coalesced() and added.indices().tolist() == [[0, 2]]
    assert added.values().tolist() == [3, 3]


PRODUCTS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "sparse": torch.sparse.mm,
    "operator": lambda a, b: a @ b,
    "dense": lambda a, b: a @ b.to_dense(),
    "sum": lambda a, b: torch.addmm(b.to_dense(), a, b.to_dense(), alpha=2),
    "vector": lambda a, b: a @ b.to_dense()[0],
}


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices(name: str, dtype: torch.dtype, layout: torch.layout) -> None:
    a, b = matrices(dtype, layout)
    compare(PRODUCTS[name](a, b), PRODUCTS[name](wide(a), wide(b)), dtype)


@pytest.mark.parametrize("layout", ["csr", "bsr"])
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
@pytest.mark.parametrize("ones", [True, False], ids=["ones", "diagonal"])
def test_triangular_systems(layout: str, upper: bool, ones: bool) -> None:
    matrix = torch.arange(16.0).view(4, 4) / 16 + 4 * torch.eye(4)
    b = torch.arange(8.0).view(4, 2)
    sparse = (matrix.to_sparse_csr() if layout == "csr" else matrix.to_sparse_bsr((2, 2))).to(DEVICE)
    for transpose in (True, False):
        options = {"upper": upper, "transpose": transpose, "unitriangular": ones}
        expected = torch.triangular_solve(b, matrix, **options).solution
        solution, copy = torch.triangular_solve(b.to(DEVICE), sparse, **options)
        assert_close(solution.cpu(), expected)
        assert copy.numel() == 0


def test_a_triangular_system_without_elements_has_no_solution() -> None:
    blocks = torch.zeros(4, 4).to_sparse_bsr((2, 2)).to(DEVICE)
    assert torch.triangular_solve(torch.ones(4, 1).to(DEVICE), blocks).solution.isnan().all()
