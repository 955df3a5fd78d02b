"""DLPack: tensors of the device that other libraries see, and the other way round.

PyTorch's C++ translates its device types: `PrivateUse1` is `kDLExtDev`. `Tensor.__dlpack_device__` compares the type
with the literal "privateuse1", so that the tensors of a renamed backend need a patch of this function, or a subclass,
until PyTorch itself is changed. `torch.utils.dlpack.to_dlpack` does not ask it.
"""

from __future__ import annotations

import gc

import torch
from torch.utils import dlpack

from backend_conformance import Device, Level, check
from backend_conformance.evidence import refused

_HOOK = "Tensor.__dlpack_device__, which compares with the literal privateuse1"


@check(level=Level.COMPLETE, hook="the device type of the tensors")
def capsule_shares_the_memory(device: Device) -> None:
    """A capsule of `to_dlpack` becomes a tensor with the same memory, shape, strides and dtype."""
    x = torch.arange(12.0, device=device.this).view(3, 4)[1:].t()
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    assert y.device == x.device and y.shape == x.shape and y.stride() == x.stride() and y.dtype == x.dtype
    assert y.data_ptr() == x.data_ptr()
    y.add_(100)
    device.cpu_equal(x, torch.arange(100.0, 112.0).view(3, 4)[1:].t())


@check(level=Level.COMPLETE, hook=_HOOK)
def tensor_tells_its_device(device: Device) -> None:
    """`__dlpack_device__()` is the type and the index."""
    kind, index = torch.ones(2, device=device.this).__dlpack_device__()
    assert index == 0
    if device.key == "PrivateUse1":
        assert int(kind) == 12, f"the type is {kind!r}, not kDLExtDev (12)"
    last = device.at(device.count - 1)
    assert torch.ones(2, device=last).__dlpack_device__()[1] == last.index


@check(level=Level.COMPLETE, hook=_HOOK)
def tensors_can_be_exchanged(device: Device) -> None:
    """`torch.from_dlpack(tensor)` gives a tensor with the same memory.

    Libraries exchange tensors by this protocol: the receiver first asks for the device.
    """
    x = torch.arange(6, device=device.this).view(2, 3)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    y.mul_(2)
    device.cpu_equal(x, [[0, 2, 4], [6, 8, 10]])


@check(
    level=Level.COMPLETE, hook=_HOOK, cases=("float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64")
)
def dtypes_are_kept(device: Device, case: str) -> None:
    """The exchange keeps the dtype and the values."""
    dtype = getattr(torch, case)
    x = torch.tensor([0, 1, 1, 0]).to(dtype).to(device.this)
    y = torch.from_dlpack(x)
    assert y.dtype == dtype
    device.cpu_equal(y, x.cpu())


@check(level=Level.COMPLETE, hook=_HOOK)
def memory_lives_as_long_as_its_last_user(device: Device) -> None:
    """The memory of a capsule is freed after the last tensor that uses it, also if the capsule is never used."""
    y = torch.from_dlpack(torch.full((1000,), 7.0, device=device.this))
    dlpack.to_dlpack(torch.ones(1000, device=device.this))
    gc.collect()
    others = [torch.full((1000,), -1.0, device=device.this) for _ in range(8)]
    device.cpu_equal(y, torch.full((1000,), 7.0))
    del others


@check(level=Level.COMPLETE, hook=_HOOK)
def tensors_with_derivatives_are_refused(device: Device) -> None:
    """A tensor that requires a gradient, or is conjugated lazily, is refused, because a capsule cannot express this."""
    refused(
        lambda: torch.from_dlpack(torch.ones(2, device=device.this, requires_grad=True)),
        "an exchange of a tensor that requires a gradient",
        RuntimeError,
        BufferError,
    )
    refused(
        lambda: torch.from_dlpack(torch.ones(2, dtype=torch.complex64, device=device.this).conj()),
        "an exchange of a lazily conjugated tensor",
        RuntimeError,
        BufferError,
    )


@check(level=Level.COMPLETE, hook=_HOOK)
def copies_can_be_asked_for(device: Device) -> None:
    """`torch.from_dlpack(tensor, copy=True)` gives a tensor with memory of its own on the device."""
    x = torch.arange(4.0, device=device.this)
    y = torch.from_dlpack(x, copy=True)
    assert y.device == x.device
    y.zero_()
    device.cpu_equal(x, [0.0, 1.0, 2.0, 3.0])
