"""Random programs with pinned memory, of which each step is known to be right, or to be a race.

A model has the bytes of each buffer, and the copies for which the host has not waited. It knows what the host reads
after a wait, and which bytes the host may not touch before.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

PAGE = mmap.PAGESIZE
STREAMS = 3


@dataclass
class Copy:
    """A copy for which the host has not waited. `parts`: the bytes of the buffer that it uses, in pieces."""

    parts: list[slice]
    writes: bool
    stream: int


@dataclass
class Buffer:
    tensor: torch.Tensor  # of bytes
    model: np.ndarray  # what they are when all copies have ended
    pending: list[Copy] = field(default_factory=list)

    def used(self, *, written: bool) -> np.ndarray:
        """For each byte, how many pending copies use it; or only those that write it."""
        used = np.zeros(len(self.model), np.int32)
        for copy in self.pending:
            for part in copy.parts if copy.writes or not written else ():
                used[part] += 1
        return used


def runs(free: np.ndarray) -> list[tuple[int, int]]:
    """The ranges of bytes that are free."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def read_by_system(view: np.ndarray) -> bytes:
    """write(2) reads the memory."""
    with os.fdopen(os.memfd_create("pinned"), "w+b", buffering=0) as file:
        assert file.write(view.data) == len(view)
        file.seek(0)
        return file.read()


def send_file(view: np.ndarray) -> bytes:
    ours, theirs = os.pipe()
    try:
        assert os.write(theirs, view[: 1 << 12].data) == min(len(view), 1 << 12)
        return os.read(ours, 1 << 12) + bytes(view[1 << 12 :])
    finally:
        os.close(ours)
        os.close(theirs)


def in_thread(read: Callable[[np.ndarray], bytes], view: np.ndarray) -> bytes:
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(read(view)))
    thread.start()
    thread.join()
    return results[0]


READS: list[Callable[[np.ndarray], bytes]] = [
    lambda view: view.tobytes(),
    lambda view: bytes(torch.from_numpy(view).tolist()),
    lambda view: bytes(memoryview(view)),
    lambda view: ctypes.string_at(view.ctypes.data, len(view)),
    lambda view: b"".join(struct.unpack_from("c", view, i)[0] for i in range(min(len(view), 9))) + bytes(view[9:]),
    lambda view: torch.from_numpy(view).clone().numpy().tobytes(),
    read_by_system,
    send_file,
    partial(in_thread, read_by_system),
    partial(in_thread, lambda view: view.tobytes()),
]


def write_by_system(view: np.ndarray, data: bytes) -> None:
    """preadv(2) writes the memory."""
    with os.fdopen(os.memfd_create("pinned"), "w+b", buffering=0) as file:
        file.write(data)
        assert os.preadv(file.fileno(), [view.data], 0) == len(view)


def write_from_map(view: np.ndarray, data: bytes) -> None:
    with mmap.mmap(-1, len(data)) as memory:
        memory.write(data)
        view[:] = np.frombuffer(memory[:], np.uint8)


WRITES: list[Callable[[np.ndarray, bytes], None]] = [
    lambda view, data: view.__setitem__(slice(None), np.frombuffer(data, np.uint8)),
    lambda view, data: torch.from_numpy(view).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8)),
    lambda view, data: memoryview(view).__setitem__(slice(None), data),
    lambda view, data: ctypes.memmove(view.ctypes.data, data, len(data)),
    lambda view, data: struct.pack_into(f"{len(data)}s", view, 0, data),
    write_by_system,
    write_from_map,
]


class Program:
    """Runs random steps. `hooks`: what a program may do to its handlers of signals, in between."""

    def __init__(self, rng: random.Random, hooks: list[Callable[[], object]]) -> None:
        self.rng, self.hooks = rng, hooks
        self.streams = [torch.openreg.default_stream(), *(torch.openreg.Stream() for _ in range(STREAMS - 1))]
        self.buffers = [self.buffer() for _ in range(rng.randrange(1, 4))]
        torch.openreg.synchronize()

    def buffer(self) -> Buffer:
        rng = self.rng
        size = rng.choice([rng.randrange(1, 100), rng.randrange(1, 4 * PAGE), rng.randrange(1, 4) * PAGE, 4000])
        tensor = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
        return Buffer(tensor, tensor.numpy().copy())

    def data(self, size: int) -> bytes:
        return self.rng.randbytes(size)

    def part(self, low: int, high: int) -> slice:
        """Of [low, high), often whole, or whole pages, or beginning or ending with it."""
        rng = self.rng
        begin, end = sorted([rng.randrange(low, high), rng.randrange(low, high) + 1])
        if rng.random() < 0.3:
            begin, end = begin // PAGE * PAGE, -(-end // PAGE) * PAGE
        begin, end = rng.choice([low, max(low, begin)]), rng.choice([high, min(high, end)])
        return slice(begin, end) if begin < end else slice(low, high)

    def copy(self) -> None:
        """An asynchronous copy to or from bytes that no other one writes, of a contiguous part or of columns."""
        buffer, rng = self.rng.choice(self.buffers), self.rng
        writes = rng.random() < 0.6
        free = runs(buffer.used(written=not writes) == 0)
        if not free:
            return
        part = self.part(*rng.choice(free))
        view = buffer.tensor[part]
        parts = [part]
        width = rng.choice([2, 16, 600, PAGE, 2 * PAGE])
        if rng.random() < 0.3 and len(view) >= 2 * width:
            first = rng.randrange(width)
            columns = slice(first, rng.randrange(first, width) + 1)
            rows = len(view) // width
            view = view[: rows * width].view(rows, width)[:, columns]
            parts = [
                slice(part.start + row * width + columns.start, part.start + row * width + columns.stop)
                for row in range(rows)
            ]
        stream = rng.randrange(STREAMS)
        with torch.openreg.stream(self.streams[stream]):
            if rng.random() < 0.1:
                torch.openreg._sleep(200_000)
            if writes:
                data = np.frombuffer(self.data(view.numel()), np.uint8).reshape(view.shape)
                source = torch.from_numpy(data.copy()).to("openreg")  # waits for the stream
                self.forget(stream)
                view.copy_(source, non_blocking=True)
                for piece, row in zip(parts, data.reshape(len(parts), -1), strict=True):
                    buffer.model[piece] = row
            else:
                view.to("openreg", non_blocking=True)
        buffer.pending.append(Copy(parts, writes, stream))

    def access(self) -> None:
        """What the host may do: read what no copy writes, or write what no copy uses."""
        buffer, rng = self.rng.choice(self.buffers), self.rng
        writes = rng.random() < 0.5
        free = runs(buffer.used(written=not writes) == 0)
        if not free:
            return
        part = self.part(*rng.choice(free))
        view = buffer.tensor.numpy()[part]
        if writes:
            data = self.data(len(view))
            rng.choice(WRITES)(view, data)
            buffer.model[part] = np.frombuffer(data, np.uint8)
        else:
            assert rng.choice(READS)(view) == buffer.model[part].tobytes()

    def wait(self) -> None:
        rng = self.rng
        stream = rng.randrange(STREAMS)
        how = rng.randrange(4)
        if how == 0:
            self.streams[stream].synchronize()
        elif how == 1:
            event = self.streams[stream].record_event()
            while not event.query():
                pass
        elif how == 2:
            self.streams[stream].record_event().synchronize()
        else:
            torch.openreg.synchronize()
        for each in range(STREAMS) if how == 3 else [stream]:
            self.forget(each)

    def forget(self, stream: int) -> None:
        """The host has waited for the stream."""
        for buffer in self.buffers:
            buffer.pending = [copy for copy in buffer.pending if copy.stream != stream]

    def replace(self) -> None:
        """Another buffer, perhaps in the memory of one for which copies are pending."""
        self.buffers[self.rng.randrange(len(self.buffers))] = self.buffer()

    def step(self) -> None:
        steps = [self.copy, self.copy, self.access, self.access, self.access, self.wait, self.replace]
        if self.hooks:
            steps.append(self.rng.choice(self.hooks))
        self.rng.choices(steps, [4, 4, 6, 6, 6, 3, 1, *([2] if self.hooks else [])])[0]()

    def finish(self) -> None:
        torch.openreg.synchronize()
        for buffer in self.buffers:
            assert buffer.tensor.numpy().tobytes() == buffer.model.tobytes()
            buffer.pending.clear()

    def races(self) -> Iterator[tuple[Buffer, int, bool]]:
        """Bytes of pages that one contiguous copy has whole, and whether it writes them."""
        for buffer in self.buffers:
            for copy in buffer.pending:
                if len(copy.parts) > 1:
                    continue
                begin, end = copy.parts[0].start, copy.parts[0].stop
                whole_end = end if end == len(buffer.model) else end // PAGE * PAGE
                for page in range(-(-begin // PAGE) * PAGE, whole_end, PAGE):
                    yield buffer, self.rng.randrange(page, min(page + PAGE, whole_end)), copy.writes
