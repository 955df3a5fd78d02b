"""Pinned host memory: statistics of its caching allocator, and how much of it the system has locked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from .. import _C

__all__ = [
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats",
]


def host_memory_stats() -> dict[str, Any]:
    """Statistics of pinned memory, for all devices together, with the names of `torch.cuda.host_memory_stats`.

    - ``"allocations.{current,peak,allocated,freed}"``, ``"allocated_bytes.{...}"``: blocks allocated from the
      system, in use or cached. Sizes are powers of two.
    - ``"active_requests.{...}"``, ``"active_bytes.{...}"``: of these, the ones in use. A block that is freed while a
      copy is queued counts until a later allocation, or `torch.accelerator.empty_host_cache`, finds the copy completed.
      Each size has its own peak, and these are added up: with several sizes the result can exceed the true peak.
    - ``"num_host_alloc"``, ``"num_host_free"``: how often a block was requested from the system, and returned.
    - ``"host_alloc_time.{total,max,min,count,avg}"``, ``"host_free_time.{...}"``: the time for these, in microseconds.
    - ``"locked_bytes.{current,peak,allocated,freed}"``, which torch.cuda does not have: bytes that the system has
      locked in memory. Fewer than ``allocated_bytes`` if the limit (``ulimit -l``) does not allow more.

    ``num_host_alloc``, ``num_host_free``, ``allocated``, ``freed``, ``total`` and ``count`` count since the process
    began or the last `reset_accumulated_host_memory_stats`; ``peak``, ``max`` and ``min`` since the process began or
    the last `reset_peak_host_memory_stats`. The dictionary is empty before the first use of the device or of pinned
    memory, and in a forked child.
    """
    return flattened(host_memory_stats_as_nested_dict())


def flattened(stats: dict[Any, Any]) -> OrderedDict[str, Any]:
    """Statistics in nested dictionaries, with a name for each path; sorted by name. The parts of a tuple are joined."""

    def items(prefix: str, part: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in part.items():
            name = prefix + ("_".join(map(str, key)) if isinstance(key, tuple) else key)
            if isinstance(value, dict):
                yield from items(name + ".", value)
            else:
                yield name, value

    return OrderedDict(sorted(items("", stats)))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Same as `host_memory_stats`, with a dictionary in place of each name with columns."""
    return _C.host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Resets ``num_host_alloc``, ``num_host_free`` and the columns ``allocated``, ``freed``, ``total`` and ``count`` of
    `host_memory_stats` to 0."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Resets the columns ``max`` and ``min`` of `host_memory_stats` to 0, and ``peak`` to ``current``."""
    _C.reset_peak_host_memory_stats()
