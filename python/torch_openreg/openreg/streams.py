"""Streams and events: torch.Stream and torch.Event, with this device filled in."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .device import DeviceLike, _get_device_index


class Stream(torch.Stream):
    """A queue of work on one device, run in order.

    Args:
        device: where it lies; default the current device.
        priority: 0, or negative for work that goes before that of other streams.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **identity: Any) -> Stream:
        if identity:  # stream_id, device_index, device_type: an existing stream
            return super().__new__(cls, **identity)
        return super().__new__(cls, _torch_device(device), priority=priority)


class Event(torch.Event):
    """A point in a stream's work that others can wait for.

    Args:
        enable_timing: whether `elapsed_time` may be asked (milliseconds).
        blocking, interprocess: taken for the sake of code written for CUDA; an interprocess event is not supported.
        device: default the current device.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        device: DeviceLike = None,
    ) -> Event:
        return super().__new__(
            cls,
            _torch_device(device),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's current stream on `device` (default: the current one)."""
    return _wrap(torch.accelerator.current_stream(device))


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that work goes to on `device` (default: the current one) unless another is made current."""
    index = _get_device_index(device, optional=True)
    return Stream(stream_id=0, device_index=index, device_type=_device_type())


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current, and its device; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def stream(
    stream: torch.Stream | None,
) -> contextlib.AbstractContextManager[torch.Stream | None]:
    """Context manager: makes `stream` and its device current inside, restores both after; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1)


def _torch_device(device: DeviceLike) -> torch.device:
    if device is None:
        return torch.device("openreg")
    if isinstance(device, int):
        return torch.device("openreg", device) if device >= 0 else torch.device("openreg")
    return torch.device(device)
