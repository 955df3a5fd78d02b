"""torch.mm and its relatives with out_dtype: float32 products of matrices of 16 bits."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from waits import assert_close_to

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]


SHAPES = {
    "mm": ((4, 3), (3, 5)),
    "bmm": ((2, 4, 3), (2, 3, 5)),
    "addmm": ((4, 5), (4, 3), (3, 5)),
    "baddbmm": ((2, 4, 5), (2, 4, 3), (2, 3, 5)),
}


def exact(name: str, *operands: torch.Tensor, **scalars) -> torch.Tensor:
    """In float64, of which float32 is the rounding."""
    return getattr(torch, name)(*(t.double() for t in operands), **scalars).float()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_have_the_digits_of_float32(name, dtype, no_waits):
    operands = [torch.randn(shape).to(dtype) for shape in SHAPES[name]]
    scalars = {"alpha": 0.5, "beta": 3} if "add" in name else {}
    expected = exact(name, *operands, **scalars)
    operands = [t.to(DEVICE, non_blocking=True) for t in operands]
    product = getattr(torch, name)(*operands, out_dtype=torch.float32, **scalars)
    assert product.dtype == torch.float32
    out = torch.empty(0, device=DEVICE)
    assert getattr(torch, name)(*operands, out_dtype=torch.float32, out=out, **scalars) is out
    assert_close_to(product, expected)
    assert_close_to(out, expected)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_dtype_of_the_factors_gives_the_plain_product(name, dtype):
    operands = [torch.randn(shape, device=DEVICE).to(dtype) for shape in SHAPES[name]]
    assert torch.equal(getattr(torch, name)(*operands, out_dtype=dtype), getattr(torch, name)(*operands))


def test_what_is_added_may_be_of_float32_and_broadcast():
    a, b = (torch.randn(4, 4).half() for _ in range(2))
    row = torch.randn(4)
    expected = exact("addmm", row, a, b)
    assert_close_to(torch.addmm(row.to(DEVICE), a.to(DEVICE), b.to(DEVICE), out_dtype=torch.float32), expected)
    batch = torch.baddbmm(row.to(DEVICE), a.to(DEVICE)[None], b.to(DEVICE)[None], out_dtype=torch.float32)
    assert_close_to(batch, expected[None])


def test_factors_and_outputs_may_be_strided():
    a, b = torch.randn(6, 4).half()[::2].t(), torch.randn(5, 3).half().t()
    out = torch.full((8, 5), 7.0, device=DEVICE)
    torch.mm(a.to(DEVICE), b.to(DEVICE), out_dtype=torch.float32, out=out[::2])
    assert_close_to(out[::2], exact("mm", a, b))
    assert_close_to(out[1::2], torch.full((4, 5), 7.0))


def test_out_of_added_values_may_be_what_is_added():
    a, b = (torch.randn(4, 4).half() for _ in range(2))
    c = torch.randn(4, 4)
    device_c = c.to(DEVICE)
    torch.addmm(device_c, a.to(DEVICE), b.to(DEVICE), out_dtype=torch.float32, out=device_c)
    assert_close_to(device_c, exact("addmm", c, a, b))


@pytest.mark.parametrize("shapes", [((0, 3), (3, 2)), ((2, 3), (3, 0)), ((2, 0), (0, 3))])
def test_empty_products(shapes):
    operands = [torch.randn(shape).half() for shape in shapes]
    product = torch.mm(*(t.to(DEVICE) for t in operands), out_dtype=torch.float32)
    assert_close_to(product, exact("mm", *operands))


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.half, device=DEVICE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.mm(half(2), half(2, 2), out_dtype=torch.float32), "self must be a matrix, got 1-D tensor"),
        (lambda: torch.mm(half(2, 2), half(2, 2, 2), out_dtype=torch.float32), "mat2 must be a matrix, got 3-D"),
        (lambda: torch.mm(half(2, 3), half(2, 3), out_dtype=torch.float32), r"cannot be multiplied \(2x3 and 2x3\)"),
        (lambda: torch.mm(half(2, 2), half(2, 2).bfloat16(), out_dtype=torch.float32), "input dtypes must be the same"),
        (lambda: torch.mm(half(2, 2), half(2, 2), out_dtype=torch.float64), "out_dtype must be the same as input"),
        (lambda: torch.mm(half(2, 2), half(2, 2), out_dtype=torch.bfloat16), "out_dtype must be the same as input"),
        (
            lambda: torch.mm(half(2, 2), half(2, 2), out_dtype=torch.float32, out=half(2, 2)),
            "out_dtype must be the same as the dtype of the provided out tensor",
        ),
        (lambda: torch.bmm(half(2, 2), half(2, 2, 2), out_dtype=torch.float32), "batch1 must be a 3D tensor"),
        (lambda: torch.bmm(half(2, 2, 2), half(2, 2), out_dtype=torch.float32), "batch2 must be a 3D tensor"),
        (lambda: torch.bmm(half(2, 1, 3), half(2, 2, 1), out_dtype=torch.float32), r"batch2 tensor to be: \[2, 3\]"),
        (lambda: torch.bmm(half(2, 1, 3), half(2, 3, 1), out_dtype=torch.float64), "out_dtype only supported"),
        (
            lambda: torch.addmm(half(2, 2).double(), half(2, 2), half(2, 2), out_dtype=torch.float32),
            "self dtype must match either out_dtype or mat1 dtype",
        ),
        (lambda: torch.addmm(half(3, 2), half(2, 2), half(2, 2), out_dtype=torch.float32), "expanded size"),
        (
            lambda: torch.baddbmm(half(1, 2, 2).double(), half(1, 2, 2), half(1, 2, 2), out_dtype=torch.float32),
            "self dtype must match either out_dtype or batch1 dtype",
        ),
        (lambda: torch.mm(half(2, 2), half(2, 2).cpu(), out_dtype=torch.float32), "same device"),
    ],
)
def test_wrong_arguments_raise_at_the_call(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()
