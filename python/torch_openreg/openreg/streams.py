"""Streams and events: torch.Stream and torch.Event for this device."""

from __future__ import annotations

import contextlib
import ctypes
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

import torch
from torch.accelerator._utils import _get_device_index

from .. import _C
from .._slot import KEY, NAME
from .arguments import DeviceLike, c_integer, check_flags, check_integer, check_type, device_index
from .entries import begin_entry, end_entry

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]

_DEVICE_TYPE: int = torch._C._autograd.DeviceType.__members__[KEY].value


class _OfThisDevice(type):
    """Decides by its device whether an object is a `Stream` or an `Event`, because PyTorch's own functions return plain
    torch.Stream and torch.Event objects."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = cls.__base__
        if kind not in (torch.Stream, torch.Event):
            return super().__instancecheck__(instance)
        return isinstance(instance, kind) and instance.device.type == NAME


class Stream(torch.Stream, metaclass=_OfThisDevice):
    """A queue of work on one device, run in order: a torch.Stream.

    Args:
        device: the stream's device; default the current one.
        priority: 0, or negative for work that runs before that of other streams.
        identity: ``stream_id``, ``device_index`` and ``device_type`` of an existing stream, instead of the above; or
            ``stream_ptr``, its native handle, instead of `priority`.

    Raises:
        TypeError: `identity` is incomplete, or `priority` is not an int.
        OverflowError: `priority` exceeds 32 bits.
        ValueError: `device` or `identity` has another device type.
        RuntimeError: there is no such device, or it has no stream with this handle.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **identity: int) -> Self:
        if identity.keys() == {"stream_ptr"}:
            identity = _identity_of(identity["stream_ptr"], device, priority)
        if torch.compiler.is_compiling():  # Dynamo can only create a torch.Stream
            plain = torch.Stream(**identity) if identity else torch.Stream(_torch_device(device), priority=priority)
            return plain  # type: ignore[return-value]
        if not identity:
            number = c_integer("priority", priority, -(2**31), 2**31 - 1)
            return super().__new__(cls, _torch_device(device), priority=number)
        if identity.keys() != {"stream_id", "device_index", "device_type"}:
            raise TypeError(
                f"openreg: this does not identify a stream (got {', '.join(identity)}, expected stream_id, "
                "device_index and device_type, or stream_ptr)"
            )
        found = super().__new__(cls, **identity)
        _check_device_of(found)
        device_index(identity["device_index"])
        return found

    def wait_event(self, event: torch.Event) -> None:
        """Makes later work wait for the event's newest record, without waiting on the host."""
        check_type("the event", event, torch.Event, "a torch.Event")  # PyTorch accepts any object
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Makes later work wait for the work queued on `stream`, without waiting on the host."""
        check_type("the stream", stream, torch.Stream, "a torch.Stream")  # as above
        super().wait_stream(stream)

    def __enter__(self) -> Self:
        _enter(self, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _leave(self, self)

    @property
    def priority(self) -> int:
        """0, or -1 if its work runs before that of other streams."""
        return _C.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority: 0 and -1."""
        return 0, -1

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The native handle, for functions called through ctypes."""
        return ctypes.c_void_p(self.native_handle)  # type: ignore[attr-defined]


class Event(torch.Event, metaclass=_OfThisDevice):
    """A point in a stream's work that streams and the host can wait for. Creates plain torch.Event objects, because
    PyTorch's functions reject instances of a subclass.

    Args:
        enable_timing: whether `elapsed_time`, which returns milliseconds, may be called with another such event of the
            same device.
        blocking, external: accepted for compatibility with CUDA. An event that was recorded while a graph was captured
            cannot be queried, or waited for on the host, even if it is external.
        interprocess: not supported, because PyTorch sends only CUDA's events to other processes.
        device: checked, but without effect: an event belongs to the device of its first record. Before, its `device`
            has no index.

    Raises:
        TypeError: one of the first four is not a bool or an int.
        OverflowError: one of the first four is not from 0 to 255.
        RuntimeError: `interprocess` is true, or there is no such device.
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
        check_flags(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess, external=external)
        if interprocess:
            _refuse_interprocess()
        return torch.Event(_torch_device(device), enable_timing=bool(enable_timing), blocking=bool(blocking))

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, handle: bytes) -> NoReturn:
        """Not supported, like `interprocess`.

        Raises:
            RuntimeError: always.
        """
        _refuse_interprocess()


def _refuse_interprocess() -> NoReturn:
    raise RuntimeError(
        "openreg: interprocess events are not supported: PyTorch has handles for CUDA events only; call "
        "synchronize() and send a message. A tensor that is sent to another process is ready when it arrives"
    )


class ExternalStream(Stream):
    """The stream with this native handle, as returned by `torch.Stream.native_handle`; 0 is the default stream.

    Args:
        stream_ptr: the handle.
        device: the stream's device; default the current one.
        priority: 0, because the stream has its own priority.

    Raises:
        TypeError: `stream_ptr` is not an int.
        ValueError: `stream_ptr` is negative or exceeds 64 bits.
        RuntimeError: the device has no such stream, or `priority` is not 0.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None, priority: int = 0) -> Self:
        return super().__new__(cls, device, priority, stream_ptr=stream_ptr)


def _identity_of(stream_ptr: int, device: DeviceLike, priority: int) -> dict[str, int]:
    index = device_index(device, negative_is_current=True)
    handle = check_integer("the handle of a stream", stream_ptr, 0, 2**64 - 1)
    if priority != 0:
        raise RuntimeError(f"openreg: a stream with a handle has its own priority (got {priority}, expected 0)")
    return {"stream_id": _C.stream_at(index, handle), "device_index": index, "device_type": _DEVICE_TYPE}


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> ExternalStream:
    """Same as `ExternalStream`."""
    return ExternalStream(data_ptr, device)


class StreamContext:
    """Context manager: makes `stream` and its device current inside, and restores both; None changes nothing.

    Raises:
        ValueError: `stream` has another device type.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        _check_stream(stream)
        _check_device_of(stream)
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            _enter(self, self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.stream is not None:
            _leave(self, self.stream)


def _enter(entered: object, stream: torch.Stream) -> None:
    if torch.compiler.is_compiling():  # Dynamo knows how to enter a stream, and traces for one thread
        stream.__enter__()
        return
    own = torch.Stream(  # a torch.Stream keeps what it restores in itself
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    own.__enter__()
    begin_entry(entered, own)


def _leave(entered: object, stream: torch.Stream) -> None:
    if torch.compiler.is_compiling():
        stream.__exit__(None, None, None)
        return
    end_entry(entered).__exit__(None, None, None)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's current stream on `device` (default: the current one)."""
    if torch.compiler.is_compiling():  # Dynamo cannot read the stream's ids
        plain = torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)
        return plain  # type: ignore[return-value]
    current = torch.accelerator.current_stream(_stream_device(device))
    return _stream_with(current.stream_id, current.device_index)


def _stream_device(device: DeviceLike) -> int:
    """The index of `device`; -1 means the current one."""
    return device_index(None if isinstance(device, int) and device == -1 else device)


def _stream_with(stream_id: int, index: int) -> Stream:
    found: Stream = torch.Stream.__new__(Stream, stream_id=stream_id, device_index=index, device_type=_DEVICE_TYPE)
    return found


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that receives work on `device` (default: the current one) unless another stream is current."""
    if torch.compiler.is_compiling():
        index = _get_device_index(device, optional=True)
        return Stream(stream_id=0, device_index=index, device_type=_DEVICE_TYPE)
    index = _stream_device(device)
    torch.accelerator.current_stream(index)  # initialises the device, which may raise
    return _stream_with(0, index)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` and its device current; None changes nothing."""
    _check_stream(stream)
    if stream is not None:
        torch.accelerator.set_stream(stream)


def _check_stream(stream: object) -> None:
    if stream is not None:
        check_type("the stream", stream, torch.Stream, "a torch.Stream or None")


def _check_device_of(stream: torch.Stream | None) -> None:
    if torch.compiler.is_compiling():  # Dynamo cannot read the device
        return
    if stream is not None and stream.device.type != NAME:
        raise ValueError(f"openreg: the stream has the wrong device type (got {stream.device}, expected {NAME})")


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Makes the stream with this id and its device current."""
    set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def _sleep(cycles: int) -> None:
    """Launches a kernel on the current stream that takes `cycles` nanoseconds but no processor time.

    Raises:
        TypeError: `cycles` is not an int.
        ValueError: `cycles` is negative or exceeds 63 bits.
    """
    _C.sleep(check_integer("the number of cycles", cycles, 0, 2**63 - 1))


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[object]:
    """Context manager: makes `stream` and its device current inside, and restores both; None changes nothing.

    Raises:
        ValueError: `stream` has another device type.
    """
    if torch.compiler.is_compiling() and stream is not None:  # Dynamo traces a stream, but not this class's state
        return stream
    return StreamContext(stream)


def _torch_device(device: DeviceLike) -> torch.device:
    if device is None or (isinstance(device, int) and device < 0):
        return torch.device(NAME)
    if torch.compiler.is_compiling() and isinstance(device, int):  # Dynamo does not trace the function below
        return torch.device(NAME, device)
    return torch.device(NAME, device_index(device))
