"""The table of `torch.openreg.memory_summary`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import _C
from .._slot import NAME

_COLUMNS = ("current", "peak", "allocated", "freed")
_POOLS = {"all": "", "large_pool": "  in large blocks", "small_pool": "  in small blocks"}


def memory_summary_of(device: int, stats: Mapping[str, int], abbreviated: bool) -> str:
    """Formats `stats`, the result of `memory_stats`; missing values are 0."""
    width = 24 + len(_COLUMNS) * 14
    lines = [
        f"Memory of {NAME}:{device}",
        f"out of memory: {stats.get('num_ooms', 0)}, retries after releasing the cache: "
        f"{stats.get('num_alloc_retries', 0)}",
        "=" * width,
        f"{'':24}" + "".join(f"{title:>14}" for title in ("current", "peak", "total added", "total freed")),
    ]
    for key, (title, form) in _ROWS.items():
        lines.append("-" * width)
        for pool, subtitle in _POOLS.items():
            if pool == "all" or not abbreviated:
                lines.append(_line(subtitle or title, stats, f"{key}.{pool}", form))
    lines.append("-" * width)
    for key, title in _OVERSIZE.items():
        lines.append(_line(title, stats, key, str))
    return "\n".join([*lines, "=" * width]) + "\n"


def _line(title: str, stats: Mapping[str, int], key: str, form: Callable[[int], str]) -> str:
    return f"{title:24}" + "".join(f"{form(stats.get(f'{key}.{column}', 0)):>14}" for column in _COLUMNS)


_ROWS: dict[str, tuple[str, Callable[[int], str]]] = {
    "allocated_bytes": ("Allocated memory", _C.format_size),
    "active_bytes": ("Active memory", _C.format_size),
    "requested_bytes": ("Requested memory", _C.format_size),
    "reserved_bytes": ("Reserved memory", _C.format_size),
    "inactive_split_bytes": ("Inactive split memory", _C.format_size),
    "allocation": ("Allocations", str),
    "active": ("Active allocations", str),
    "segment": ("Reserved segments", str),
    "inactive_split": ("Inactive split blocks", str),
}
_OVERSIZE = {"oversize_allocations": "Oversize allocations", "oversize_segments": "Oversize segments"}
