"""Automatic mixed precision: ``torch.amp`` with this device filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype", "is_bf16_supported"]


class autocast(torch.amp.autocast):
    """``torch.autocast("openreg", ...)``.

    Args:
        dtype: float16 (the default) or bfloat16.
        enabled: False computes in the tensors' own dtypes inside.
        cache_enabled: whether weights are cast once, and not in every call.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True) -> None:
        super().__init__("openreg", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("openreg", ...)``, with its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("openreg", *args, **kwargs)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd(device_type="openreg")``: for the forward method of a torch.autograd.Function.

    Args:
        cast_inputs: dtype that floating-point tensors of the device are cast to within autocast, which is off inside;
            None leaves both as they are.
    """
    return torch.amp.custom_fwd(fwd, device_type="openreg", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """``torch.amp.custom_bwd(device_type="openreg")``: for the backward method; it runs with forward's autocast."""
    return torch.amp.custom_bwd(bwd, device_type="openreg")


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast accepts for this device."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors can be computed with: always."""
    return True
