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


def test_functional_form_equals_cpu():
    a, b = torch.randn(3, 1, 4), torch.randn(5, 1)
    result = torch.add(a.to(DEVICE), b.to(DEVICE), alpha=2)
    assert result.device == torch.device(f"{DEVICE}:0")
    assert_close(result.cpu(), torch.add(a, b, alpha=2))


def test_inplace_form_writes_into_the_first_argument():
    a, b = torch.randn(4), torch.randn(4)
    x = a.to(DEVICE)
    pointer = x.data_ptr()
    assert x.mul_(b.to(DEVICE)) is x
    assert x.data_ptr() == pointer
    assert_close(x.cpu(), a * b)


def test_out_form_resizes_an_empty_output():
    a, b = torch.randn(2, 3), torch.randn(3)
    out = torch.empty(0, device=DEVICE)
    result = torch.add(a.to(DEVICE), b.to(DEVICE), out=out)
    assert result is out
    assert_close(out.cpu(), a + b)


def test_out_form_warns_where_it_resizes_what_has_elements():
    x = torch.ones(3, device=DEVICE)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(x, x, out=torch.empty(5, device=DEVICE))


def test_no_warning_of_resized_outputs_comes_out_of_a_kernel():
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_device = a.to(DEVICE), b.to(DEVICE)
        with no_waits():
            got = torch.nn.functional.mse_loss(*on_device)
        torch.accelerator.synchronize()
    assert_close(got.cpu(), torch.nn.functional.mse_loss(a, b))


def test_out_form_writes_a_strided_output():
    a = torch.randn(3, 4)
    buffer = torch.zeros(4, 3, device=DEVICE)
    torch.neg(a.to(DEVICE), out=buffer.t())
    assert_close(buffer.cpu(), (-a).t())


def test_several_outputs():
    a = torch.randn(4, 5)
    values, indices = torch.max(a.to(DEVICE), dim=1)
    expected = torch.max(a, dim=1)
    assert_close(values.cpu(), expected.values)
    assert_close(indices.cpu(), expected.indices)


def test_several_out_arguments_empty():
    a = torch.randn(4, 5)
    values, indices = torch.empty(0, device=DEVICE), torch.empty(0, dtype=torch.long, device=DEVICE)
    torch.max(a.to(DEVICE), dim=1, out=(values, indices))
    assert_close(values.cpu(), a.max(1).values)
    assert_close(indices.cpu(), a.max(1).indices)


def test_composites_pass_unsized_outputs():
    a = torch.randn(4, 5)
    assert_close(torch.logsumexp(a.to(DEVICE), 1).cpu(), torch.logsumexp(a, 1))
    target = torch.sign(torch.randn(4, 5))
    assert_close(
        torch.nn.functional.soft_margin_loss(a.to(DEVICE), target.to(DEVICE)).cpu(),
        torch.nn.functional.soft_margin_loss(a, target),
    )


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


def test_default_dtype_is_read_at_the_launch():
    a, b = torch.tensor([1], device=DEVICE), torch.tensor([3], device=DEVICE)
    torch.set_default_dtype(torch.float64)
    try:
        result = a / b
        expected = torch.tensor([1]) / torch.tensor([3])
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.dtype == torch.float64
    assert result.item() == expected.item()


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


def test_channels_last_survives():
    a = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    x = a.to(DEVICE)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x + x).is_contiguous(memory_format=torch.channels_last)
    assert_close((x + x).cpu(), a + a)


def test_aliases_keep_their_meaning():
    a = torch.arange(6.0)
    x = a.to(DEVICE)
    x[1:].copy_(x[1:] * 2)
    torch.mul(x, x, out=x)
    a[1:] *= 2
    a *= a
    assert_close(x.cpu(), a)


def test_tensor_lists():
    parts = [torch.randn(2, 3), torch.randn(1, 3)]
    assert_close(torch.cat([p.to(DEVICE) for p in parts]).cpu(), torch.cat(parts))


def test_indices_on_the_cpu():
    a = torch.randn(5, 3)
    index = torch.tensor([4, 0, 2])
    x = a.to(DEVICE)
    assert_close(x[index].cpu(), a[index])
    assert_close(x[:, torch.tensor([2, 0])].cpu(), a[:, [2, 0]])
    x[index] = 0.0
    a[index] = 0.0
    assert_close(x.cpu(), a)


def test_mask_index():
    a = torch.randn(6)
    x = a.to(DEVICE)
    assert_close(x[x > 0].cpu(), a[a > 0])


def test_conjugate_operands():
    a, b = torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64)
    assert_close((a.to(DEVICE).conj() * b.to(DEVICE)).cpu(), a.conj() * b)


def test_flush_denormal_is_taken_from_the_launching_thread():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-denormal mode")
    try:
        x = torch.tensor([1e-39], device=DEVICE) * 0.5
    finally:
        torch.set_flush_denormal(False)
    kept = torch.tensor([1e-39], device=DEVICE) * 0.5
    assert x.item() == 0.0
    assert kept.item() != 0.0
    assert (torch.tensor([1e-39]) * 0.5).item() != 0.0  # and this thread's own mode is as it was
