"""Streams and events: torch.Stream and torch.Event, with this device filled in."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.accelerator._utils import _get_device_index

from .device import DeviceLike


class _OfThisDevice(type):
    """The classes below make plain torch.Stream and torch.Event objects, since PyTorch's functions refuse an event of a
    subclass; so whether an object is one of theirs is decided by its device, whoever made it."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = torch.Stream if issubclass(cls, torch.Stream) else torch.Event
        return isinstance(instance, kind) and instance.device.type == "openreg"


class Stream(torch.Stream, metaclass=_OfThisDevice):
    """A queue of work on one device, run in order: a torch.Stream.

    Args:
        device: where it lies; default the current device.
        priority: 0, or negative for work that goes before that of other streams.
        identity: ``stream_id``, ``device_index`` and ``device_type`` of a stream that exists.

    Raises:
        RuntimeError: there is no such device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **identity: int) -> torch.Stream:  # type: ignore[misc]
        if identity:
            return torch.Stream(**identity)
        return torch.Stream(_torch_device(device), priority=priority)


class Event(torch.Event, metaclass=_OfThisDevice):
    """A point in a stream's work that others can wait for: a torch.Event.

    Args:
        enable_timing: whether `elapsed_time` may be asked (milliseconds).
        blocking, interprocess: taken for the sake of code written for CUDA; an interprocess event is not supported.
        device: default the current device.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        device: DeviceLike = None,
    ) -> torch.Event:
        return torch.Event(
            _torch_device(device),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """The calling thread's current stream on `device` (default: the current one)."""
    return torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that work goes to on `device` (default: the current one) unless another is made current."""
    current = current_stream(device)
    return torch.Stream(stream_id=0, device_index=current.device_index, device_type=current.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current, and its device; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager: makes `stream` and its device current inside, restores both after; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def _torch_device(device: DeviceLike) -> torch.device:
    if device is None or (isinstance(device, int) and device < 0):
        return torch.device("openreg")
    if isinstance(device, int):  # apart, since torch.compile does not look into the function below
        return torch.device("openreg", device)
    return torch.device("openreg", _get_device_index(device, optional=True))
