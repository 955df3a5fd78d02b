"""Tensors whose storage has been resized below them: no operator reaches beyond it."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE

pytestmark = pytest.mark.any_device

ROWS = 300
BYTES = 4 * ROWS * ROWS


def sparse(values: torch.Tensor) -> torch.Tensor:
    indices = torch.arange(ROWS, device=DEVICE).unsqueeze(0)
    return torch.sparse_coo_tensor(indices, values, (ROWS, ROWS), check_invariants=False)


USES = {
    "fill": lambda x: x.fill_(1),
    "zero": lambda x: x.zero_(),
    "structured": lambda x: x + 1,
    "in place": lambda x: x.mul_(2),
    "as an output": lambda x: torch.sin(torch.ones(ROWS, ROWS, device=DEVICE), out=x),
    "reduction": lambda x: x.sum(),
    "boxed": lambda x: x.sort(),
    "boxed output": lambda x: torch.linalg.inv(torch.eye(ROWS, device=DEVICE), out=x),
    "list": lambda x: torch._foreach_add_([x], 1),
    "cat": lambda x: torch.cat([x, x]),
    "by hand": lambda x: F.layer_norm(x, (ROWS,)),
    "random": lambda x: x.uniform_(),
    "copy of a view": lambda x: torch.view_copy(x, (ROWS * ROWS,)),
    "on this thread": lambda x: x.nonzero(),
    "to sparse": lambda x: x.to_sparse(),
    "values of sparse": lambda x: sparse(x).to_dense(),
    "to the host": lambda x: x.cpu(),
    "from the host": lambda x: x.copy_(torch.ones(ROWS, ROWS)),
    "from pinned": lambda x: x.copy_(torch.ones(ROWS, ROWS).pin_memory(), non_blocking=True),
    "to pinned": lambda x: torch.empty(ROWS, ROWS, pin_memory=True).copy_(x, non_blocking=True),
    "to a device": lambda x: x.to(f"{DEVICE}:1"),
    "from a device": lambda x: x.copy_(torch.ones(ROWS, ROWS, device=f"{DEVICE}:1")),
    "within the device": lambda x: x.clone(),
}


@pytest.mark.parametrize("nbytes", [0, 64, BYTES - 1])
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_tensor_beyond_its_storage_is_refused_at_the_call(use, nbytes):
    x = torch.ones(ROWS, ROWS, device=DEVICE)
    x.untyped_storage().resize_(nbytes)
    for _ in range(2):  # also where the call is planned
        with pytest.raises(RuntimeError, match=f"got a storage of {nbytes} bytes, expected {BYTES} or more"):
            use(x)
    torch.accelerator.synchronize()
    x.untyped_storage().resize_(BYTES)
    assert x.fill_(2).sum().item() == 2 * ROWS * ROWS


def test_a_call_that_was_planned_is_refused_when_its_storage_is_too_short():
    x = torch.ones(ROWS, device=DEVICE)
    assert x.mul(2).eq(2).all()
    x.untyped_storage().resize_(4)
    with pytest.raises(RuntimeError, match=f"got a storage of 4 bytes, expected {4 * ROWS} or more"):
        x.mul(2)


def test_an_element_beyond_the_storage_is_not_read():
    x = torch.ones(4, device=DEVICE)[3]
    x.untyped_storage().resize_(12)
    with pytest.raises(RuntimeError, match="got a storage of 12 bytes, expected 16 or more"):
        x.item()


@pytest.mark.parametrize("view", [lambda x: x.mT, lambda x: x[::2, ::3], lambda x: x.expand(2, ROWS, ROWS)])
def test_views_are_refused_as_well(view):
    x = torch.ones(ROWS, ROWS, device=DEVICE)
    y = view(x)
    x.untyped_storage().resize_(1000)
    with pytest.raises(RuntimeError, match=r"got a storage of 1000 bytes, expected \d{6} or more"):
        y.sin()


def test_a_number_of_the_host_beyond_its_storage_is_refused():
    number = torch.tensor([1.0, 2.0])[1]
    number.untyped_storage().resize_(6)
    with pytest.raises(RuntimeError, match="got a storage of 6 bytes, expected 8 or more"):
        torch.ones(3, device=DEVICE) + number


def test_the_offset_counts():
    x = torch.ones(4, device=DEVICE)
    y = x[2:]
    x.untyped_storage().resize_(8)
    with pytest.raises(RuntimeError, match="got a storage of 8 bytes, expected 16 or more"):
        y.neg()
    x.untyped_storage().resize_(16)
    assert y.neg_().shape == (2,)


def test_what_overlaps_reaches_no_further_than_its_last_element():
    x = torch.arange(5.0, device=DEVICE).as_strided((3, 3), (1, 1))
    assert x.neg().cpu().tolist() == [[0, -1, -2], [-1, -2, -3], [-2, -3, -4]]
    x.untyped_storage().resize_(16)
    with pytest.raises(RuntimeError, match="got a storage of 16 bytes, expected 20 or more"):
        x.neg()


def test_what_has_no_elements_needs_no_storage():
    x = torch.ones(4, device=DEVICE)
    y = x[4:]
    x.untyped_storage().resize_(0)
    assert y.neg().shape == (0,)
    assert y.cpu().shape == (0,)


@pytest.mark.parametrize("operator", [torch.sin, lambda x, out: torch.cumsum(x, 0, out=out)])
def test_an_output_that_is_resized_gets_its_memory(operator):
    out = torch.ones(ROWS, device=DEVICE)
    out.untyped_storage().resize_(0)
    x = torch.arange(5.0)
    with warnings.catch_warnings(action="ignore"):  # of the resizing
        operator(x.to(DEVICE), out=out)
        expected = operator(x, out=torch.empty(0))
    torch.testing.assert_close(out.cpu(), expected)
