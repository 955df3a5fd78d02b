"""Interprocess events: ``torch.cuda.Event(interprocess=True)``, its ``ipc_handle``, and ``Event.from_ipc_handle``.

The processes share two pages of memory. In the first is how often the event has been recorded, in the second the number
of the record that has completed last, which the device writes, in the order of the stream.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any

import torch

_PAGE = mmap.PAGESIZE
_HANDLE = struct.Struct("<8sii16s32x")  # as long as CUDA's: 64 bytes
_MAGIC = b"openreg\0"
_TOKEN = slice(8, 24)  # in the first page: whose event it is
_NUMBER = struct.Struct("<q")
_LONGEST_PAUSE = 1e-3


class SharedRecords:
    """The records of an event that processes share, as one of them sees them."""

    def __init__(self, descriptor: int, _C: Any) -> None:
        self._descriptor = descriptor
        self._C = _C
        self._unregister = _C.unregister_pinned_memory  # modules may be gone when the event goes
        self._own = -1  # the number of this process's newest record
        self._written: torch.Tensor | None = None  # the second page, as the device writes it
        self._pages = mmap.mmap(descriptor, 2 * _PAGE)

    @classmethod
    def make(cls, _C: Any) -> SharedRecords:
        """The records of a new event."""
        descriptor = os.memfd_create("openreg-event")
        os.ftruncate(descriptor, 2 * _PAGE)
        shared = cls(descriptor, _C)
        shared._pages[_TOKEN] = secrets.token_bytes(16)
        return shared

    @classmethod
    def of_handle(cls, handle: bytes, _C: Any) -> SharedRecords:
        """The records of an event of another process, or of this one.

        Raises:
            RuntimeError: the handle is invalid, or its event no longer exists.
        """
        try:
            magic, process, number, token = _HANDLE.unpack(handle)
            if magic != _MAGIC:
                raise ValueError("it is not a result of ipc_handle()")
            shared = cls(os.open(f"/proc/{process}/fd/{number}", os.O_RDWR), _C)
            if bytes(shared._pages[_TOKEN]) != token:
                raise ValueError("the event was destroyed")
        except (OSError, ValueError, struct.error) as error:
            raise RuntimeError(f"openreg: invalid event handle: {error}") from None
        return shared

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._written is not None:
            self._unregister(self._written.data_ptr())
        close(self._descriptor)

    def handle(self) -> bytes:
        """The handle from which another process creates the event, while this one exists."""
        return _HANDLE.pack(_MAGIC, os.getpid(), self._descriptor, bytes(self._pages[_TOKEN]))

    def record(self, stream: torch.Stream) -> None:
        """Records the event: the work that `stream` has now completes the record."""
        self._own = self._records() + 1
        _NUMBER.pack_into(self._pages, 0, self._own)
        if self._written is None:
            self._written = torch.frombuffer(self._pages, dtype=torch.int64, count=1, offset=_PAGE)
            self._C.register_pinned_memory(self._written.data_ptr(), _PAGE)
        with stream:
            self._written.copy_(torch.full((1,), self._own, device=stream.device), non_blocking=True)

    def newest_is_own(self) -> bool:
        """Whether no other process has recorded the event since this one did."""
        return self._own == self._records()

    def query(self) -> bool:
        """Whether the newest record has completed."""
        return self._completed() >= self._records()

    def synchronize(self) -> None:
        """Waits until the record that is the newest now has completed."""
        number, pause = self._records(), 1e-5
        while self._completed() < number:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _records(self) -> int:
        return int(_NUMBER.unpack_from(self._pages, 0)[0])

    def _completed(self) -> int:
        return int(_NUMBER.unpack_from(self._pages, _PAGE)[0])
