"""Memory: what the caching allocator holds. All numbers are bytes; nothing here uses the device."""

from __future__ import annotations

from torch.accelerator import (
    empty_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

from .device import DeviceLike

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total memory of `device` (default: the current one)."""
    return get_memory_info(device)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of the allocator's figures for reading, in MiB; abbreviated to allocated and reserved memory."""
    stats = memory_stats(device)
    kinds = ["allocated_bytes", "reserved_bytes"]
    if not abbreviated:
        kinds += ["active_bytes", "inactive_split_bytes", "requested_bytes"]
    columns = ("current", "peak", "allocated", "freed")
    lines = [f"{'openreg, MiB':24}" + "".join(f"{column:>14}" for column in columns)]
    for kind in kinds:
        values = (stats.get(f"{kind}.all.{column}", 0) / 2**20 for column in columns)
        lines.append(f"{kind:24}" + "".join(f"{value:14.2f}" for value in values))
    return "\n".join(lines)
