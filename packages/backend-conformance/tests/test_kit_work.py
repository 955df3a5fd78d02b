"""Work for the device: enough to see the host run ahead, on a device of which the speed was measured wrongly, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backend_conformance import work


class Stream:
    """A stream of a device whose products take a time that depends on their size, without computing anything."""

    device = torch.device("meta")

    def __init__(self, clock: SimpleNamespace, seconds_of_a_product: dict[int, float], synchronous: bool) -> None:
        self.clock, self.seconds, self.synchronous = clock, seconds_of_a_product, synchronous
        self.submitted = self.free = 0.0  # when the last work was, and when all is complete

    def product(self, size: int) -> None:
        self.clock.now += 1e-5
        self.submitted = self.clock.now
        self.free = max(self.free, self.submitted) + self.seconds[size]
        if self.synchronous:
            self.clock.now = self.free

    def query(self) -> bool:
        return self.free <= self.clock.now

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(work.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(work.time, "sleep", lambda seconds: setattr(made, "now", made.now + seconds))
    monkeypatch.setattr(work, "_sizes", {})
    monkeypatch.setattr(work, "_synchronous", set())
    return made


def submit(monkeypatch: pytest.MonkeyPatch, stream: Stream) -> bool:
    class Matrix:
        def __init__(self, size: int) -> None:
            self.size = size

        def __matmul__(self, other: Matrix) -> Matrix:
            stream.product(self.size)
            return other

    monkeypatch.setattr(torch, "full", lambda shape, value, device: Matrix(shape[0]))
    target: Any = stream
    return work.submit(SimpleNamespace(), target)  # type: ignore[arg-type]


SECONDS = {256 << doublings: 1e-6 * 8**doublings for doublings in range(5)}  # of a fast device


def test_the_host_is_ahead_of_a_fast_device(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    work._sizes[Stream.device] = 1024, SECONDS[1024]
    stream = Stream(clock, SECONDS, synchronous=False)
    assert submit(monkeypatch, stream)
    assert stream.free - stream.submitted > 0.01


def test_a_device_that_was_busy_when_it_was_measured_gets_more(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    work._sizes[Stream.device] = 256, 1e-3  # a thousand times too long
    stream = Stream(clock, SECONDS, synchronous=False)
    assert submit(monkeypatch, stream)
    assert stream.free - stream.submitted > 0.01


def test_a_device_without_streams_is_never_behind(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    work._sizes[Stream.device] = 1024, SECONDS[1024]
    assert not submit(monkeypatch, Stream(clock, SECONDS, synchronous=True))
    first = clock.now
    assert not submit(monkeypatch, Stream(clock, SECONDS, synchronous=True))
    assert clock.now - first < first / 2, "it is not tried as often again"


def test_a_slow_device_without_streams_is_not_kept_busy(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    work._sizes[Stream.device] = 256, 1e-2  # ten times too long
    slow = {size: 1000 * seconds for size, seconds in SECONDS.items()}
    assert not submit(monkeypatch, Stream(clock, slow, synchronous=True))
    assert clock.now < 5
