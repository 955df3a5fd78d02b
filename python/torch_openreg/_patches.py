"""What PyTorch lets a backend change in Python only. Each patch gives its reason."""

from __future__ import annotations

import enum
import functools

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

NAME = "openreg"


def apply() -> None:
    """Applies all patches. Called once, when the device is loaded."""
    _patch_dlpack_device()
    _patch_byteswap()


def _patch_dlpack_device() -> None:
    # PyTorch compares the device type with the literal "privateuse1", which no renamed backend has, so that
    # torch.from_dlpack(tensor) raises. The C++ side does map the device, to kDLExtDev.
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type != NAME:
            return original(self)
        from torch.utils.dlpack import DLDeviceType

        return (DLDeviceType.kDLExtDev, self.device.index)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _patch_byteswap() -> None:
    # It swaps through the raw pointer, on the host: on device memory the process would die.
    original = torch.UntypedStorage.byteswap

    @functools.wraps(original)
    def byteswap(self: torch.UntypedStorage, dtype: torch.dtype) -> None:
        if self.device.type == NAME:
            raise RuntimeError(
                f"openreg: byteswap needs a storage in host memory (got {self.device}, expected cpu); use .cpu() first"
            )
        original(self, dtype)  # type: ignore[no-untyped-call]

    torch.UntypedStorage.byteswap = byteswap  # type: ignore[method-assign, assignment]
