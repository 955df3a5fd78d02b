"""Streams and events: torch.Stream and torch.Event, with this device filled in."""

from __future__ import annotations

import contextlib
import ctypes
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.accelerator._utils import _get_device_index

from .. import _C
from .device import DeviceLike

if TYPE_CHECKING:
    from typing_extensions import Self

_DEVICE_TYPE = torch._C._autograd.DeviceType.PrivateUse1.value


class _OfThisDevice(type):
    """Decides by its device whether an object is a `Stream` or an `Event`, since PyTorch's own functions return plain
    torch.Stream and torch.Event objects."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = cls.__base__
        if kind not in (torch.Stream, torch.Event):
            return super().__instancecheck__(instance)
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

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **identity: int) -> Self:
        if torch.compiler.is_compiling():  # Dynamo knows how to make a torch.Stream only
            plain = torch.Stream(**identity) if identity else torch.Stream(_torch_device(device), priority=priority)
            return plain  # type: ignore[return-value]
        if identity:
            return super().__new__(cls, **identity)
        return super().__new__(cls, _torch_device(device), priority=priority)

    @property
    def priority(self) -> int:
        """0, or -1 if its work goes before that of other streams."""
        return _C.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest priority and the highest: 0 and -1."""
        return 0, -1

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The native handle, for functions called by ctypes."""
        return ctypes.c_void_p(self.native_handle)  # type: ignore[attr-defined]


class Event(torch.Event, metaclass=_OfThisDevice):
    """A point in a stream's work that others can wait for: makes plain torch.Event objects, since PyTorch's functions
    refuse those of a subclass.

    Args:
        enable_timing: whether `elapsed_time` may be asked (milliseconds).
        blocking, interprocess, external: taken for the sake of code written for CUDA. An interprocess event is not
            supported; `external` concerns the capture of graphs.
        device: default the current device.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: DeviceLike = None,
    ) -> torch.Event:
        return torch.Event(
            _torch_device(device),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


class ExternalStream(Stream):
    """The stream that has this native handle, as `torch.Stream.native_handle` gives it.

    Args:
        stream_ptr: the handle.
        device: the stream's device; default the current one.

    Raises:
        RuntimeError: the device has no such stream.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None) -> Self:
        index = _get_device_index(device, optional=True)
        return super().__new__(
            cls, stream_id=_C.stream_at(index, stream_ptr), device_index=index, device_type=_DEVICE_TYPE
        )


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> ExternalStream:
    """As `ExternalStream`."""
    return ExternalStream(data_ptr, device)


class StreamContext:
    """Context manager: makes `stream` and its device current inside, restores both after; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, value, traceback)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's current stream on `device` (default: the current one)."""
    current = torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)
    if torch.compiler.is_compiling():  # Dynamo cannot ask it for its numbers
        return current  # type: ignore[return-value]
    return Stream(stream_id=current.stream_id, device_index=current.device_index, device_type=current.device_type)


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that work goes to on `device` (default: the current one) unless another is made current."""
    index = _get_device_index(device, optional=True)
    current_stream(index)  # raises if there is no such device
    return Stream(stream_id=0, device_index=index, device_type=_DEVICE_TYPE)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current, and its device; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Makes the stream with this id current, and its device."""
    set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def _sleep(cycles: int) -> None:
    """Launches a kernel on the current stream that takes `cycles` nanoseconds and no processor time.

    Raises:
        ValueError: `cycles` is negative.
    """
    _C.sleep(cycles)


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager: makes `stream` and its device current inside, restores both after; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def _torch_device(device: DeviceLike) -> torch.device:
    if device is None or (isinstance(device, int) and device < 0):
        return torch.device("openreg")
    if isinstance(device, int):  # apart, since torch.compile does not look into the function below
        return torch.device("openreg", device)
    return torch.device("openreg", _get_device_index(device, optional=True))
