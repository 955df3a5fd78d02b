"""DLPack. PyTorch's C++ exchanges tensors of such a device; its Python compares the type with the unnamed one."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType


def install() -> None:
    """Makes ``torch.from_dlpack`` accept tensors of the device."""
    original = torch.Tensor.__dlpack_device__

    @wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if self.device.type == "acme":
            return DLDeviceType.kDLExtDev, self.device.index
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
