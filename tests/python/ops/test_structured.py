"""Tier 1: structured operators, in their three forms."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from devices import DEVICE
from modules import load
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device


@pytest.mark.openreg_only
def test_every_structured_operator_has_a_kernel_in_each_form():
    pytest.importorskip("yaml", reason="torchgen reads the schema with PyYAML")
    missing = []
    for group in load("tools/generate_structured.py").structured_groups(Path(torch.__file__).parent):
        for form in (group.functional, group.out, group.inplace):
            if not form:
                continue
            packet, _, overload = form.rpartition("_")
            names = {f"aten::{packet}.{overload}", f"aten::{form}"}
            if not any(registered(name) for name in names):
                missing.append(form)
    # Names with an underscore in them are looked up by what torch itself says of the operator.
    assert [m for m in missing if not any(registered(n) for n in possible_names(m))] == []


def possible_names(unambiguous: str) -> list[str]:
    """`linalg_cross_out` may be `linalg_cross.out`: all places where the overload's name may begin."""
    parts = unambiguous.split("_")
    cuts = range(1, len(parts))
    return [f"aten::{'_'.join(parts[:i])}.{'_'.join(parts[i:])}" for i in cuts] + [f"aten::{unambiguous}"]


def registered(name: str) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
    except RuntimeError:
        return False


def test_no_warning_of_resized_outputs_comes_out_of_a_kernel():
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_device = a.to(DEVICE), b.to(DEVICE)
        with no_waits():
            got = torch.nn.functional.mse_loss(*on_device)
        torch.accelerator.synchronize()
    assert_close(got.cpu(), torch.nn.functional.mse_loss(a, b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_python_scalars_stay_wrapped_numbers(dtype):
    """A Python scalar with a 0-dim tensor does not widen the dtype, nor changes the rounding."""
    a = torch.tensor(1.2345, dtype=dtype)
    for op in (torch.add, torch.mul, torch.div, torch.sub):
        result = op(a.to(DEVICE), 3.3)
        assert result.dtype == dtype
        assert result.item() == op(a, 3.3).item()


def test_zero_dimensional_cpu_operand_is_read_at_the_launch():
    scalar = torch.tensor(2.0)
    x = torch.ones(4, device=DEVICE)
    result = x * scalar
    scalar.fill_(100.0)
    assert_close(result.cpu(), torch.full((4,), 2.0))
    assert_close((scalar + x).cpu(), torch.full((4,), 101.0))


@pytest.mark.parametrize(
    "op", [lambda x: x + 0.1, lambda x: x * 0.1, lambda x: x * 0.1j, lambda x: x.clone().add(x, alpha=2) / 3]
)
def test_python_numbers_take_the_default_dtype_of_the_launch(op):
    a = torch.tensor([1, 3, 7])
    x = a.to(DEVICE)
    busy = torch.randn(1000, 1000).to(DEVICE)
    torch.set_default_dtype(torch.float64)
    try:
        for _ in range(4):
            busy = busy @ busy  # what follows runs when the default is another again
        result, expected = op(x), op(a)
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.dtype == expected.dtype
    assert torch.equal(result.cpu(), expected)


def test_aliases_keep_their_meaning():
    a = torch.arange(6.0)
    x = a.to(DEVICE)
    x[1:].copy_(x[1:] * 2)
    torch.mul(x, x, out=x)
    a[1:] *= 2
    a *= a
    assert_close(x.cpu(), a)
