"""A model of PyTorch's caching allocator for CUDA (its native backend in torch 2.13).

It shares no code with the device's allocator, and has the structure of the original: one list of blocks for each
segment, with gaps as blocks without memory. For the same calls it has the same statistics, to the byte. Of blocks of
the same size that of the oldest segment is taken first, so nothing depends on addresses. Not modelled: graphs, and
memory of other programs.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

MIB = 1 << 20
MIN_BLOCK = 512
SMALL = MIB  # the largest small block
SMALL_SEGMENT = 2 * MIB
OWN_SEGMENT = 10 * MIB  # larger blocks have one


@dataclasses.dataclass(frozen=True)
class Settings:
    expandable: bool = False
    max_split: int | None = None
    max_non_split_rounding: int = 20 * MIB
    divisions: int = 0
    threshold: float = 0.0
    large_segment: int = 20 * MIB


class Home(NamedTuple):
    """What a block belongs to."""

    pool: int
    small: bool
    stream: int


@dataclasses.dataclass
class Segment:
    number: int  # in the order of creation
    home: Home
    expandable: bool
    page: int = 0


class Block:
    def __init__(self, segment: Segment, offset: int, size: int) -> None:
        self.segment, self.offset, self.size = segment, offset, size
        self.requested = 0
        self.mapped, self.allocated, self.users = True, False, set[int]()
        self.previous: Block | None = None
        self.next: Block | None = None
        self.searches = 0  # of its pool when it became free

    @property
    def is_split(self) -> bool:
        return self.previous is not None or self.next is not None

    @property
    def is_free(self) -> bool:
        return not self.allocated and not self.users

    @property
    def order(self) -> tuple[int, int, int]:
        return self.size, self.segment.number, self.offset

    def insert_after(self, other: Block) -> None:
        self.previous, self.next = other, other.next
        if self.next is not None:
            self.next.previous = self
        other.next = self


class CudaAllocator:
    """`capacity`: bytes of the device; `fraction`: of set_per_process_memory_fraction()."""

    def __init__(self, capacity: int, settings: Settings = Settings(), fraction: float = 1.0) -> None:
        self.capacity, self.settings = capacity, settings
        self.allowed = int(fraction * capacity) if fraction < 1 else None
        self.free_blocks: dict[Home, list[tuple[tuple[int, int, int], Block]]] = {}
        self.unmapped: dict[Home, list[Block]] = {}  # by segment and offset
        self.searches: dict[tuple[int, bool], int] = {}
        self.pending: list[Block] = []
        self.spare_pools: list[int] = []  # with use_on_oom
        self.whole_pools: set[int] = set()  # with no_split
        self.unused_pools: list[int] = []
        self.segments = 0
        self.stats = dict.fromkeys(
            "reserved reserved_peak allocated allocated_peak allocations active segments inactive_split "
            "inactive_split_bytes oversize_allocations oversize_segments retries ooms syncs maps unmaps".split(),
            0,
        )

    # --- Calls of a program ---

    def malloc(self, size: int, stream: int = 0, pool: int = 0) -> Block | None:
        self._process_events()
        rounded = self.round(size)
        home = Home(pool, rounded <= SMALL, stream)
        expandable = self.settings.expandable
        block = self._find(home, rounded, expandable)
        if block is None:
            if self.allowed is not None and self.settings.threshold > 0:
                self._collect_garbage()
            block = self._map(home, rounded)
        if block is None and pool == 0:
            for spare in self.spare_pools:
                block = self._find(home._replace(pool=spare), rounded, False)
                if block is not None:
                    expandable = False
                    break
        if block is None and self._release_oversize(home, rounded):
            block = self._map(home, rounded)
        if block is None:
            self._release_cached()
            self.stats["retries"] += 1
            block = self._map(home, rounded)
        if block is None:
            self.stats["ooms"] += 1
            return None
        return self._allocate(block, rounded, size, expandable)

    def free(self, block: Block) -> None:
        block.allocated = False
        self._add("allocated", -block.size)
        self._add("allocations", -1)
        if self._is_oversize(block.size):
            self._add("oversize_allocations", -1)
        if block.users:
            self.pending.append(block)
        else:
            self._free_block(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """The stream has done its work before the next call of malloc() or empty_cache() after the block is freed."""
        if stream != block.segment.home.stream:
            block.users.add(stream)

    def empty_cache(self) -> None:
        self._release_cached()

    def end_pool(self, pool: int) -> None:
        """The program uses the pool no more; its memory is released."""
        self.unused_pools.append(pool)
        if pool in self.spare_pools:
            self.spare_pools.remove(pool)
        self.stats["syncs"] += 1
        self._process_events()
        for small in (True, False):
            self._release_blocks(pool, small)

    def has_room(self, size: int) -> bool:
        """Whether a new segment fits."""
        limit = self.capacity if self.allowed is None else self.allowed
        return self.stats["reserved"] + self.segment_size(self.round(size)) <= limit

    # --- Sizes ---

    def round(self, size: int) -> int:
        divisions = self.settings.divisions
        if divisions > 1 and size > MIN_BLOCK * divisions:
            step = (1 << (size.bit_length() - 1)) // divisions
            return -(-size // step) * step
        return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)

    def segment_size(self, rounded: int) -> int:
        if rounded <= SMALL:
            return SMALL_SEGMENT
        if rounded < OWN_SEGMENT:
            return self.settings.large_segment
        return -(-rounded // SMALL_SEGMENT) * SMALL_SEGMENT

    def _is_oversize(self, size: int) -> bool:
        return self.settings.max_split is not None and size >= self.settings.max_split

    def _splits(self, block: Block, rounded: int, expandable: bool) -> bool:
        home, rest = block.segment.home, block.size - rounded
        if home.pool in self.whole_pools:
            return False
        if home.small or expandable:
            return rest >= MIN_BLOCK
        return not self._is_oversize(rounded) and rest > SMALL

    # --- Free blocks ---

    def _insert(self, block: Block) -> None:
        home = block.segment.home
        block.searches = self.searches.get(home[:2], 0)
        bisect.insort(self.free_blocks.setdefault(home, []), (block.order, block))

    def _remove(self, block: Block) -> None:
        blocks = self.free_blocks[block.segment.home]
        index = bisect.bisect_left(blocks, (block.order,))
        assert blocks[index][1] is block
        del blocks[index]

    def _find(self, home: Home, rounded: int, expandable: bool) -> Block | None:
        if self.allowed is not None and self.settings.threshold > 0:
            self.searches[home[:2]] = self.searches.get(home[:2], 0) + 1
        blocks = [block for _, block in self.free_blocks.get(home, [])]
        index = next((i for i, block in enumerate(blocks) if block.size >= rounded), len(blocks))

        def can_become(block: Block) -> int:
            after = block.next
            return block.size + (after.size if after is not None and not after.mapped else 0)

        if expandable:
            while index + 1 < len(blocks) and blocks[index].segment.expandable:
                if can_become(blocks[index + 1]) >= can_become(blocks[index]):
                    break
                index += 1
        else:
            while index < len(blocks) and blocks[index].segment.expandable:
                index += 1
        if index == len(blocks):
            return None
        block = blocks[index]
        if not self._is_oversize(rounded) and self._is_oversize(block.size):
            return None
        if self._is_oversize(rounded) and block.size >= rounded + self.settings.max_non_split_rounding:
            return None
        self._remove(block)
        return block

    def _allocate(self, block: Block, rounded: int, size: int, expandable: bool) -> Block:
        counts = not block.segment.expandable
        was_split = block.is_split
        if self._splits(block, rounded, expandable):
            rest = Block(block.segment, block.offset + rounded, block.size - rounded)
            rest.insert_after(block)
            block.size = rounded
            self._insert(rest)
            if counts:
                self._add("inactive_split_bytes", -rounded if was_split else rest.size)
                self._add("inactive_split", 0 if was_split else 1)
        elif was_split and counts:
            self._add("inactive_split_bytes", -block.size)
            self._add("inactive_split", -1)
        block.allocated, block.requested = True, size
        self._add("allocated", block.size)
        self._add("active", block.size)
        self._add("allocations", 1)
        if self._is_oversize(block.size):
            self._add("oversize_allocations", 1)
        return block

    def _free_block(self, block: Block) -> None:
        self._add("active", -block.size)
        number = size = 0
        for neighbour in (block.previous, block.next):
            merged = self._merge(block, neighbour)
            size -= merged
            number -= merged > 0
        self._insert(block)
        if block.is_split:
            size += block.size
            number += 1
        if not block.segment.expandable:
            self._add("inactive_split", number)
            self._add("inactive_split_bytes", size)

    def _merge(self, block: Block, other: Block | None) -> int:
        if other is None or not other.is_free or other.mapped != block.mapped:
            return 0
        if other.mapped:
            self._remove(other)
        else:
            self.unmapped[other.segment.home].remove(other)
        if block.previous is other:
            block.offset, block.previous = other.offset, other.previous
            if block.previous is not None:
                block.previous.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.previous = block
        block.size += other.size
        return other.size

    def _process_events(self) -> None:
        pending, self.pending = self.pending, []
        for block in pending:
            block.users.clear()
            self._free_block(block)

    # --- Memory from the device ---

    def _map(self, home: Home, rounded: int) -> Block | None:
        size = self.segment_size(rounded)
        if self.allowed is not None and self.stats["reserved"] + size > self.allowed:
            return None
        if self.settings.expandable:
            return self._map_pages(home, rounded)
        if self.stats["reserved"] + size > self.capacity:
            return None
        self.segments += 1
        self._add("reserved", size)
        self._add("segments", 1)
        self._add("oversize_segments", int(self._is_oversize(size)))
        self.stats["maps"] += 1
        return Block(Segment(self.segments, home, expandable=False), 0, size)

    def _map_pages(self, home: Home, rounded: int) -> Block | None:
        block = self._find_addresses(home, rounded)
        if not block.mapped and not self._map_block(block, min(block.size, rounded)):
            return None
        while block.size < rounded:
            gap = block.next
            assert gap is not None
            if not self._map_block(gap, min(rounded - block.size, gap.size)):
                return None
            block = gap
        self._remove(block)
        return block

    def _find_addresses(self, home: Home, rounded: int) -> Block:
        for gap in self.unmapped.setdefault(home, []):
            first = gap.previous if gap.previous is not None and gap.previous.is_free else gap
            size = 0
            block: Block | None = first
            while block is not None and block.is_free and size < rounded:
                size += block.size
                block = block.next
            if size >= rounded:
                return first
        self.segments += 1
        page = SMALL_SEGMENT if home.small else self.settings.large_segment
        addresses = -(-(self.capacity + self.capacity // 8) // page) * page
        gap = Block(Segment(self.segments, home, expandable=True, page=page), 0, addresses)
        gap.mapped = False
        self._insert_gap(gap)
        return gap

    def _insert_gap(self, gap: Block) -> None:
        bisect.insort(self.unmapped[gap.segment.home], gap, key=lambda block: (block.segment.number, block.offset))

    def _map_block(self, gap: Block, size: int) -> bool:
        size = -(-size // gap.segment.page) * gap.segment.page
        if self.stats["reserved"] + size > self.capacity:
            return False
        self.unmapped[gap.segment.home].remove(gap)
        gap.mapped = True
        if size < gap.size:
            rest = Block(gap.segment, gap.offset + size, gap.size - size)
            rest.mapped = False
            rest.insert_after(gap)
            self._insert_gap(rest)
            gap.size = size
        self._merge(gap, gap.previous)
        self._merge(gap, gap.next)
        self._insert(gap)
        self._add("reserved", size)
        self.stats["maps"] += 1
        return True

    # --- Memory back to the device ---

    def _release_cached(self) -> None:
        self.stats["syncs"] += 1
        self._process_events()
        for pool in (0, *self.unused_pools):
            for small in (False, True):
                self._release_blocks(pool, small)

    def _release_blocks(self, pool: int, small: bool) -> None:
        blocks = [
            block for home, entries in self.free_blocks.items() if home[:2] == (pool, small) for _, block in entries
        ]
        for block in blocks:
            if block.segment.expandable:
                self._unmap(block)
            elif not block.is_split:
                self._release(block)

    def _release(self, block: Block) -> None:
        self._remove(block)
        self._add("reserved", -block.size)
        self._add("segments", -1)
        self._add("oversize_segments", -int(self._is_oversize(block.size)))
        self.stats["unmaps"] += 1

    def _unmap(self, block: Block) -> None:
        page = block.segment.page
        begin, end = -(-block.offset // page) * page, (block.offset + block.size) // page * page
        if begin >= end:
            return
        self._remove(block)
        if begin > block.offset:
            before = Block(block.segment, block.offset, begin - block.offset)
            before.previous, before.next = block.previous, block
            if before.previous is not None:
                before.previous.next = before
            block.previous = before
            self._insert(before)
        if end < block.offset + block.size:
            after = Block(block.segment, end, block.offset + block.size - end)
            after.insert_after(block)
            self._insert(after)
        block.offset, block.size, block.mapped = begin, end - begin, False
        self._merge(block, block.previous)
        self._merge(block, block.next)
        if block.is_split:
            self._insert_gap(block)
        self._add("reserved", -(end - begin))
        self.stats["unmaps"] += 1

    def _release_oversize(self, home: Home, rounded: int) -> bool:
        if self.settings.max_split is None:
            return False
        wanted = max(rounded, self.settings.max_split)
        blocks = [block for _, block in self.free_blocks.get(home, [])]
        enough = next((block for block in blocks if block.size >= wanted), None)
        if enough is not None and not enough.segment.expandable:
            self._release(enough)
            return True
        released = 0
        for block in reversed(blocks if enough is None else blocks[: blocks.index(enough)]):
            if released >= wanted or not self._is_oversize(block.size):
                break
            if not block.segment.expandable:
                released += block.size
                self._release(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        assert self.allowed is not None
        threshold = int(self.settings.threshold * self.allowed)
        if self.stats["reserved"] <= threshold:
            return
        wanted = self.stats["reserved"] - threshold
        searches = self.searches.get((0, False), 0)
        blocks = [
            block
            for home, entries in self.free_blocks.items()
            if home[:2] == (0, False)
            for _, block in entries
            if not block.is_split and not block.segment.expandable
        ]
        while wanted > 0 and blocks:
            average = sum(searches - block.searches for block in blocks) / len(blocks)
            for block in [block for block in blocks if searches - block.searches >= average]:
                wanted -= block.size
                blocks.remove(block)
                self._release(block)

    # --- Statistics ---

    def _add(self, name: str, amount: int) -> None:
        self.stats[name] += amount
        if f"{name}_peak" in self.stats:
            self.stats[f"{name}_peak"] = max(self.stats[f"{name}_peak"], self.stats[name])


def replay(trace: Iterable[Mapping[str, Any]], allocator: CudaAllocator) -> CudaAllocator:
    """Repeats the calls of a device's trace in a snapshot.

    Memory that the trace releases though there is room for the next allocation is an empty_cache()."""
    held: dict[int, Block] = {}
    emptied = False
    for entry in trace:
        action = entry["action"]
        emptied = emptied or action in {"segment_free", "segment_unmap"}
        if action == "alloc":
            if emptied and allocator.has_room(entry["size"]):
                allocator.empty_cache()
            block = allocator.malloc(entry["size"], entry["stream"])
            assert block is not None, "out of memory where the trace is not"
            held[entry["addr"]], emptied = block, False
        elif action == "oom":
            assert allocator.malloc(entry["size"], entry["stream"]) is None, "memory where the trace has none"
            emptied = False
        elif action == "free_completed" and entry["addr"] in held:
            allocator.free(held.pop(entry["addr"]))
    return allocator
