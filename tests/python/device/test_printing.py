"""Tensors of the device print as CPU tensors do, with their device."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex128, torch.complex64, torch.complex32,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.bool,
]  # fmt: skip


def on_cpu(text: str, device: str = f"{DEVICE}:0") -> str:
    """`text` without the device, and with its white space made even: the device makes lines break elsewhere."""
    return "".join(text.replace(f"device='{device}'", "").replace(",", " ").replace("\n", " ").split())


def test_the_two_examples():
    assert repr(torch.tensor([1, 2, 3], device=DEVICE)) == "tensor([1, 2, 3], device='openreg:0')"
    assert repr(torch.tensor(1, device=DEVICE)) == "tensor(1, device='openreg:0')"


@pytest.mark.any_device
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (0, 3)])
def test_every_dtype(dtype, shape):
    x = torch.arange(1, 1 + torch.Size(shape).numel()).to(torch.float32).reshape(shape).to(dtype)
    assert on_cpu(repr(x.to(DEVICE))) == on_cpu(repr(x))


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(5000).view(50, 100),
        torch.linspace(-1e8, 1e-8, 2000),
        torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0]),
        torch.ones(3, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)).detach(),
        torch.eye(3).to(torch.complex64).conj(),
        torch.arange(12).view(3, 4).t(),
    ],
    ids=["large", "wide range", "not finite", "requires grad", "detached", "conjugate", "transposed"],
)
def test_other_tensors(x):
    y = x.detach().to(DEVICE).requires_grad_(x.requires_grad)
    assert on_cpu(repr(y)) == on_cpu(repr(x))
    assert "device='openreg:0'" in repr(y)


def test_a_result_shows_its_gradient_function():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    assert repr(x * 2) == "tensor([2., 2.], device='openreg:0', grad_fn=<MulBackward0>)"


def test_a_parameter_and_the_second_device():
    p = torch.nn.Parameter(torch.ones(2, device=f"{DEVICE}:1"))
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], device='openreg:1', requires_grad=True)"


def test_format_takes_a_number():
    assert f"{torch.tensor(1.25, device='openreg'):.3f}" == "1.250"
