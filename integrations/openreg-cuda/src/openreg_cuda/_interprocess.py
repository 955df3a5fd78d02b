"""Events between processes: ``torch.cuda.Event(interprocess=True)``, its ``ipc_handle``, and ``Event.from_ipc_handle``.

The processes share two pages of memory. In the first is how often the event has been recorded, in the second the number
of the record that has completed last, which the device writes, in the order of the stream.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
from types import ModuleType
from typing import Any

import torch

_PAGE = mmap.PAGESIZE
_HANDLE = struct.Struct("<8sii16s32x")  # as long as CUDA's: 64 bytes
_MAGIC = b"openreg\0"
_TOKEN = slice(8, 24)  # in the first page: whose event it is
_NUMBER = struct.Struct("<q")
_LONGEST_PAUSE = 1e-3


class _Shared:
    """The memory that the processes share."""

    def __init__(self, descriptor: int, _C: Any) -> None:
        self.descriptor = descriptor
        self._C = _C
        self.pages = mmap.mmap(descriptor, 2 * _PAGE)
        self._completed: torch.Tensor | None = None

    def __del__(self) -> None:
        if getattr(self, "_completed", None) is not None:
            self._C.unregister_pinned_memory(self._completed.data_ptr())  # type: ignore[union-attr]
        os.close(self.descriptor)

    def records(self) -> int:
        return int(_NUMBER.unpack_from(self.pages, 0)[0])

    def set_records(self, number: int) -> None:
        _NUMBER.pack_into(self.pages, 0, number)

    def completed(self) -> int:
        return int(_NUMBER.unpack_from(self.pages, _PAGE)[0])

    def complete(self, number: int, stream: torch.Stream) -> None:
        """Work of `stream`: the record with this number has completed."""
        if self._completed is None:
            self._completed = torch.frombuffer(self.pages, dtype=torch.int64, count=1, offset=_PAGE)
            self._C.register_pinned_memory(self._completed.data_ptr(), _PAGE)
        with stream:
            self._completed.copy_(torch.full((1,), number, device=stream.device), non_blocking=True)


class InterprocessEvent(torch.Event):
    """An event that other processes can wait for, and record. A stream's wait for a record of another process is one of
    the host."""

    _shared: _Shared
    _own = -1  # the number of this process's newest record

    def ipc_handle(self) -> bytes:
        """What another process makes the event from, while this one exists."""
        token = bytes(self._shared.pages[_TOKEN])
        return _HANDLE.pack(_MAGIC, os.getpid(), self._shared.descriptor, token)

    def record(self, stream: torch.Stream | None = None) -> None:
        stream = stream or torch.cuda.current_stream()
        super().record(stream)
        self._own = self._shared.records() + 1
        self._shared.set_records(self._own)
        self._shared.complete(self._own, stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        if self._is_own():
            super().wait(stream or torch.cuda.current_stream())
        else:
            self.synchronize()

    def query(self) -> bool:
        return super().query() if self._is_own() else self._shared.completed() >= self._shared.records()

    def synchronize(self) -> None:
        if self._is_own():
            return super().synchronize()
        number, pause = self._shared.records(), 1e-5
        while self._shared.completed() < number:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    def elapsed_time(self, end_event: Any) -> float:
        raise RuntimeError("openreg: an event between processes has no time; time events of one process")

    def _is_own(self) -> bool:
        return self._own == self._shared.records()


def provide(module: ModuleType, _C: Any) -> None:
    """Gives the device's class of events `interprocess` and `from_ipc_handle`."""
    kind: Any = module.Event
    create = kind.__new__

    def __new__(
        cls: Any,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: Any = None,
    ) -> torch.Event:
        made: torch.Event = create(cls, enable_timing, blocking, False, external, device=device)
        if not interprocess:
            return made
        if enable_timing:
            raise RuntimeError("openreg: an event between processes cannot have a time (got enable_timing=True)")
        descriptor = os.memfd_create("openreg-event")
        os.ftruncate(descriptor, 2 * _PAGE)
        event = _with_memory(descriptor)
        event._shared.pages[_TOKEN] = secrets.token_bytes(16)
        return event

    def _with_memory(descriptor: int) -> InterprocessEvent:
        event = InterprocessEvent("cuda")
        event._shared = _Shared(descriptor, _C)
        return event

    def from_ipc_handle(cls: Any, device: Any, handle: bytes) -> InterprocessEvent:
        """The event of another process, or of this one.

        Raises:
            RuntimeError: the handle is not one of an event that exists.
        """
        try:
            magic, process, number, token = _HANDLE.unpack(handle)
            if magic != _MAGIC:
                raise ValueError("it was made by something else")
            event = _with_memory(os.open(f"/proc/{process}/fd/{number}", os.O_RDWR))
            if bytes(event._shared.pages[_TOKEN]) != token:
                raise ValueError("its event is gone")
        except (OSError, ValueError, struct.error) as error:
            raise RuntimeError(f"openreg: this is not the handle of an event ({error})") from None
        return event

    kind.__new__ = __new__
    kind.from_ipc_handle = classmethod(from_ipc_handle)
