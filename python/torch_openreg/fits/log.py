"""The log of a device's allocations as tensors: blocks, and what each of them is for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch

from .. import _C
from .modules import FIRST_MODULE, OPTIMIZER, WORKSPACE

_ACTIONS = {name: number for number, name in enumerate(_C.memory_actions)}
_GROWS = ("segment_alloc", "segment_map")
_SHRINKS = ("segment_free", "segment_unmap")
ACCUMULATES = -1
"""The sequence number of a node that accumulates a gradient, as a signed integer."""


@dataclass(frozen=True)
class Before:
    """What a device held when the recording began: the address and the size of each block, and what was reserved."""

    blocks: list[tuple[int, int]]
    reserved: int


class Log:
    """The events of a device, in order, as columns of int64 on the CPU. What was held before comes first.

    Attributes:
        first: the number of events that stand for what was held before.
        allocations: the events that are allocations, each of which is a block. The other columns below have an element
            for each block.
        freed: the event that frees the block; the number of events if none does.
        size: bytes.
        tag, line, node, thread_of_node, thread, next_node: backend::AllocationLabel.
        backward: whether the block was allocated in a backward pass.
    """

    def __init__(self, device: int, before: Before) -> None:
        columns = _C.allocation_log(device)
        held = {
            "action": [_ACTIONS["segment_alloc"], *(_ACTIONS["alloc"] for _ in before.blocks)],
            "address": [0, *(address for address, _ in before.blocks)],
            "bytes": [before.reserved, *(size for _, size in before.blocks)],
        }
        self.first = 1 + len(before.blocks)
        every = {
            name: torch.cat(
                [
                    torch.tensor(held.get(name, [0] * self.first), dtype=torch.int64),
                    torch.frombuffer(data, dtype=torch.int64) if data else _EMPTY,
                ]
            )
            for name, data in columns.items()
        }
        self._action, self._address, self._bytes = every["action"], every["address"], every["bytes"]
        self.events = len(self._action)
        self._is_allocation = self._action == _ACTIONS["alloc"]
        self.allocations = self._is_allocation.nonzero().flatten()
        self.size = self._bytes[self.allocations]
        self.address = self._address[self.allocations]
        self.every_tag, self.every_line = every["tag"], every["line"]
        self.tag, self.line, self.node, self.thread_of_node, self.thread, self.next_node = (
            every[name][self.allocations] for name in ("tag", "line", "node", "thread_of_node", "thread", "next_node")
        )
        self.every_backward = every["backward"] != 0
        self.backward = self.every_backward[self.allocations]
        self.block, self.freed = self._pair()

    def _pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """For each event the block that it allocates or frees, or -1; for each block the event that frees it."""
        uses = (self._is_allocation | (self._action == _ACTIONS["free_requested"])).nonzero().flatten()
        uses = uses[torch.sort(self._address[uses], stable=True).indices]
        block = torch.full((self.events,), -1)
        block[self.allocations] = torch.arange(len(self.allocations))
        freed = torch.full((len(self.allocations),), self.events)
        # At one address, allocations and frees alternate; a free without one is of a block older than the log.
        first, second = uses[:-1], uses[1:]
        pairs = self._is_allocation[first] & ~self._is_allocation[second]
        pairs &= self._address[first] == self._address[second]
        block[second[pairs]] = block[first[pairs]]
        freed[block[first[pairs]]] = second[pairs]
        return block, freed

    def deltas(self) -> torch.Tensor:
        """By how much each event changes what tensors hold."""
        change = torch.zeros(self.events, dtype=torch.int64)
        known = self.block >= 0
        change[known] = self.size[self.block[known]]
        return torch.where(self._is_allocation, change, -change)

    def reserved(self) -> torch.Tensor:
        """What the allocator holds from the device after each event."""
        change = torch.zeros(self.events, dtype=torch.int64)
        for names, sign in ((_GROWS, 1), (_SHRINKS, -1)):
            for name in names:
                change += torch.where(self._action == _ACTIONS[name], sign * self._bytes, 0)
        return change.cumsum(0)

    def held_at(self, event: int) -> torch.Tensor:
        """The blocks that are held after an event."""
        return ((self.allocations <= event) & (self.freed > event)).nonzero().flatten()

    def failures(self) -> list[tuple[int, int]]:
        """The allocations that ran out of memory: the event and the bytes that were requested."""
        events = (self._action == _ACTIONS["oom"]).nonzero().flatten().tolist()
        return [(event, int(self._bytes[event])) for event in events]

    def marked(self, marks: list[tuple[int, int, str, str]]) -> dict[int, list[tuple[str, str]]]:
        """The blocks of marks: the length of the device's log at the mark, the address, and two texts.

        Returns:
            For each block the texts of its marks.
        """
        blocks: dict[int, list[int]] = defaultdict(list)
        wanted = torch.isin(self.address, torch.tensor(sorted({mark[1] for mark in marks}), dtype=torch.int64))
        for block in wanted.nonzero().flatten().tolist():
            blocks[int(self.address[block])].append(block)
        found: dict[int, list[tuple[str, str]]] = defaultdict(list)
        starts, ends = self.allocations.tolist(), self.freed.tolist()
        for length, address, *texts in marks:
            at = length + self.first
            for block in reversed(blocks.get(address, ())):
                if starts[block] < at:
                    if ends[block] >= at:
                        found[block].append((texts[0], texts[1]))
                    break
        return found


_EMPTY = torch.empty(0, dtype=torch.int64)


def is_forward(tag: torch.Tensor) -> torch.Tensor:
    """Whether tags are of modules."""
    return tag >= FIRST_MODULE


def is_workspace(tag: torch.Tensor) -> torch.Tensor:
    return tag == WORKSPACE


def is_optimizer(tag: torch.Tensor) -> torch.Tensor:
    return tag == OPTIMIZER
