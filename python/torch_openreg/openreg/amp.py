"""Automatic mixed precision: ``torch.amp`` for this device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._slot import NAME
from .device import is_available
from .entries import begin_entry, end_entry

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "is_bf16_supported",
]


class autocast(torch.amp.autocast):
    """``torch.autocast("openreg", ...)``.

    Args:
        enabled: if False, operators inside compute in the tensors' own dtypes.
        dtype: float16 (the default) or bfloat16.
        cache_enabled: whether weights are cast once instead of in every call.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True) -> None:
        super().__init__(NAME, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    def __enter__(self) -> Any:
        if torch.compiler.is_compiling():
            return super().__enter__()  # type: ignore[no-untyped-call]
        own = torch.amp.autocast.__new__(torch.amp.autocast)  # keeps what it restores in itself
        vars(own).update(vars(self))
        own.__enter__()
        begin_entry(self, own)
        return self

    def __exit__(self, *error: Any) -> Any:
        if torch.compiler.is_compiling():
            return super().__exit__(*error)
        return end_entry(self).__exit__(*error)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("openreg", ...)``, with its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(NAME, *args, **kwargs)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd(device_type="openreg")``: for the forward method of a torch.autograd.Function.

    Args:
        fwd: the method; None returns a decorator.
        cast_inputs: within autocast, the dtype to which floating-point tensors of the device are cast; autocast is then
            disabled inside. None changes neither.
    """
    return torch.amp.custom_fwd(fwd, device_type=NAME, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """``torch.amp.custom_bwd(device_type="openreg")``: for the backward method, which runs with forward's autocast."""
    return torch.amp.custom_bwd(bwd, device_type=NAME)


def amp_definitely_not_available() -> bool:
    """Whether there is no device to use."""
    return not is_available()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast accepts for this device."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes with bfloat16 tensors: always True."""
    return True
