"""Which tensors a kernel uses in part: the race detector reports what certainly has an element in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch._inductor.dependencies import MemoryDep
from torch._inductor.ir import ComputedBuffer
from torch._inductor.virtualized import V


def used_in_part(nodes: Iterable[Any], arguments: Any) -> list[int]:
    """The numbers of those parameters of a kernel that are tensors of which it uses some elements, not all.

    Args:
        nodes: the scheduler's nodes that the kernel computes.
        arguments: its arguments (torch._inductor.codegen.common.KernelArgs).
    """
    parts = _Parts()
    for node in nodes:
        for each in node.get_nodes():
            parts.add(each)
    aliases = {name: set(buffer.other_names) for name, buffer in _buffers(arguments.inplace_buffers)}
    tensors = {**V.graph.name_to_buffer, **V.graph.graph_inputs}
    names = [str(argument) for argument in arguments.cpp_argdefs()[1]]
    return [
        number
        for number, name in enumerate(names)
        if name in tensors and parts.are_some_of(name, aliases.get(name, set()))
    ]


def _buffers(buffers: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The buffers that the kernel still needs."""
    return ((name, buffer) for name, buffer in buffers.items() if hasattr(buffer, "other_names"))


class _Parts:
    """How many elements of each buffer are used, if that is known."""

    def __init__(self) -> None:
        self._accesses: dict[str, dict[Any, MemoryDep]] = {}  # by what they access, reads and writes alike
        self._whole: set[str] = set()

    def add(self, node: Any) -> None:
        renamed = V.graph.scheduler.mutation_real_name
        # A node that writes to another buffer than its own depends on all of it, whatever it writes.
        changed = {renamed[access.name] for access in node.read_writes.writes if access.name in renamed}
        for access in node.read_writes.reads | node.read_writes.writes:
            name = renamed.get(access.name, access.name)
            if isinstance(access, MemoryDep) and isinstance(node.node, ComputedBuffer):
                self._accesses.setdefault(name, {})[access.index, access.size] = access
            elif access.name not in changed:
                self._whole.add(name)

    def are_some_of(self, name: str, aliases: set[str]) -> bool:
        """Whether they are fewer than the buffer has; `aliases` share its memory."""
        names = {name, *aliases}
        accesses: dict[Any, MemoryDep] = {}
        for each in names:
            accesses |= self._accesses.get(each, {})
        if not accesses or names & self._whole:
            return False
        if any(access.is_indirect() for access in accesses.values()):
            return True
        count = sum(access.get_numel() for access in accesses.values())
        return bool(V.graph.sizevars.statically_known_lt(count, V.graph.get_numel(name)))
