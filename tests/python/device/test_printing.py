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
