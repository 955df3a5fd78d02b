"""What must be true of device memory, in plain Python: which addresses are in use, and what the statistics count.

memory_soak.py does at random what programs do with memory, and compares the device with this.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import torch

GRANULE = 512  # sizes are multiples of it
EXACT = ("allocation", "allocated_bytes", "requested_bytes")
BOUNDED = ("active", "active_bytes")  # freed blocks count until other streams have done with them


def rounded(size: int, granularity: int = GRANULE) -> int:
    return -(-size // granularity) * granularity


@dataclass
class Counter:
    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.peak = max(self.peak, self.current)
        self.allocated += amount

    def remove(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount


def counters() -> dict[str, Counter]:
    return {name: Counter() for name in EXACT + BOUNDED}


def amounts(size: int) -> dict[str, int]:
    """What a block of `size` bytes adds to each counter."""
    return {
        "allocation": 1,
        "allocated_bytes": rounded(size),
        "requested_bytes": size,
        "active": 1,
        "active_bytes": rounded(size),
    }


@dataclass
class Statistics:
    """What one device has to count."""

    held: dict[str, Counter] = field(default_factory=counters)  # by the program
    held_or_pending: dict[str, Counter] = field(default_factory=counters)  # the most that may be active
    pending: list[int] = field(default_factory=list)  # sizes
    active_at_reset: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BOUNDED, 0))
    out_of_memory: int = 0
    retries: int = 0

    def allocated(self, size: int) -> None:
        for name, amount in amounts(size).items():
            self.held[name].add(amount)
            self.held_or_pending[name].add(amount)

    def freed(self, size: int, pending: bool) -> None:
        for name, amount in amounts(size).items():
            self.held[name].remove(amount)
        self.pending.append(size)
        if not pending:
            self.drained(self.pending.pop())

    def drained(self, *sizes: int) -> None:
        for size in sizes:
            for name, amount in amounts(size).items():
                self.held_or_pending[name].remove(amount)

    def all_drained(self) -> None:
        """Whatever was freed while other streams used it is now in the cache or with the device again."""
        self.drained(*self.pending)
        self.pending.clear()

    def peak_is_reset(self) -> None:
        for counter in [*self.held.values(), *self.held_or_pending.values()]:
            counter.peak = counter.current

    def accumulated_is_reset(self, active: dict[str, int]) -> None:
        """`active`: what the bounded counters were."""
        self.active_at_reset = active
        for counter in [*self.held.values(), *self.held_or_pending.values()]:
            counter.allocated = counter.freed = 0
        self.out_of_memory = self.retries = 0

    def check(self, device: int, peaks: bool = True) -> None:
        """Compares with the device, which may be at work but must not allocate.

        `peaks`: false if threads have allocated at the same time, so that the peak is unknown.
        """
        stats = torch.openreg.memory_stats(device)
        columns = ("current", "allocated", "freed") + ("peak",) * peaks
        for name in EXACT:
            for column in columns:
                expected = getattr(self.held[name], column)
                found = stats[f"{name}.all.{column}"]
                assert found == expected, f"{name}.{column} of device {device} is {found}, expected {expected}"
        for name in BOUNDED:
            current, peak, allocated, freed = (
                stats[f"{name}.all.{column}"] for column in ("current", "peak", "allocated", "freed")
            )
            least, most = self.held[name], self.held_or_pending[name]
            where = f"{name} of device {device}"
            assert least.current <= current <= most.current, f"{where}: {current}, {least.current} to {most.current}"
            assert allocated == most.allocated, f"{where}: {allocated} allocated, expected {most.allocated}"
            assert current == self.active_at_reset[name] + allocated - freed, f"{where}: {freed} freed"
            if peaks:
                assert least.peak <= peak <= most.peak, f"{where}: the peak is {peak}, {least.peak} to {most.peak}"
        for name in EXACT + BOUNDED + ("segment", "reserved_bytes"):
            for column in ("current", "allocated", "freed"):
                whole, *parts = (stats[f"{name}.{pool}.{column}"] for pool in ("all", "small_pool", "large_pool"))
                assert whole == sum(parts), f"{name}.{column} of device {device} is {whole}, its parts are {parts}"
        assert stats["num_ooms"] == self.out_of_memory
        if peaks:
            assert stats["num_alloc_retries"] == self.retries
        free, total = torch.openreg.mem_get_info(device)
        reserved = stats["reserved_bytes.all.current"]
        assert stats["active_bytes.all.current"] <= reserved <= total
        assert stats["inactive_split_bytes.all.current"] <= reserved - stats["active_bytes.all.current"]
        assert free + reserved == total


@dataclass(eq=False)
class Block:
    tensor: torch.Tensor
    value: int  # of each byte
    stream: torch.openreg.Stream
    readers: set[torch.openreg.Stream] = field(default_factory=set)  # other streams, recorded

    def __post_init__(self) -> None:
        self.address, self.size = self.tensor.data_ptr(), self.tensor.nbytes


class Addresses:
    """No two blocks overlap, and no block lies in one that a stream is not done with."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._pending: list[tuple[int, int, list[torch.openreg.Event]]] = []

    def take(self, start: int, size: int) -> None:
        end = start + rounded(size)
        assert start % GRANULE == 0, f"a block starts at {start:#x}"
        at = bisect.bisect_left(self._starts, start)
        assert at == 0 or self._ends[at - 1] <= start, f"{start:#x} lies in the block before"
        assert at == len(self._starts) or end <= self._starts[at], f"{start:#x} and {size} bytes reach into the next"
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        # An event that has not happened now had not happened when the block was given.
        self._pending = [entry for entry in self._pending if not all(event.query() for event in entry[2])]
        for first, last, _ in self._pending:
            assert end <= first or last <= start, f"{start:#x} lies in a block that another stream still uses"

    def give(self, start: int, size: int, events: list[torch.openreg.Event]) -> None:
        """`events`: the pending work of the recorded streams when the block was freed."""
        at = bisect.bisect_left(self._starts, start)
        assert self._starts[at] == start
        del self._starts[at], self._ends[at]
        if events:
            self._pending.append((start, start + rounded(size), events))


def nothing_is_left(devices: list[Statistics]) -> None:
    """All blocks are freed: nothing is counted, nothing is reserved, and all of a device can be had in one piece."""
    torch.openreg.empty_cache()
    for device, statistics in enumerate(devices):
        statistics.all_drained()
        assert statistics.held["allocation"].current == 0
        statistics.check(device, peaks=False)
        stats = torch.openreg.memory_stats(device)
        assert stats["reserved_bytes.all.current"] == stats["segment.all.current"] == 0
        free, total = torch.openreg.mem_get_info(device)
        assert free == total
        assert torch.empty(total, dtype=torch.uint8, device=f"openreg:{device}").nbytes == total
    torch.openreg.empty_cache()
