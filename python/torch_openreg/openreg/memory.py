"""Device memory: usage, limits, pools, snapshots. As ``torch.cuda.memory``, in bytes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import deprecated

from .. import _C
from .._slot import NAME
from .arguments import DeviceLike, check_integer, device_index, index_or_current
from .device import _lazy_init
from .host_memory import (
    flattened,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    reset_accumulated_host_memory_stats,
    reset_peak_host_memory_stats,
)
from .memory_history import (
    _allocation_traceback as _allocation_traceback,
    _annotate_tensor as _annotate_tensor,
    _dump_snapshot as _dump_snapshot,
    _get_memory_metadata as _get_memory_metadata,
    _memory_metadata_supported as _memory_metadata_supported,
    _record_memory_history as _record_memory_history,
    _save_memory_usage as _save_memory_usage,
    _save_segment_usage as _save_segment_usage,
    _set_memory_metadata as _set_memory_metadata,
    _snapshot as _snapshot,
    memory_snapshot,
)
from .memory_hooks import register_out_of_memory_hook
from .memory_peak import peak
from .memory_pools import MemPool, use_mem_pool
from .memory_table import memory_summary_of

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "ipc_collect",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "peak",
    "register_out_of_memory_hook",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def empty_cache() -> None:
    """Returns unused memory of all devices to the system, after waiting for their work.

    Memory of a `MemPool` that still exists stays reserved. Errors of the work are not raised here, but by the next call
    that waits for its results. Does nothing before the first use of the device, and in a forked child of a
    process that has used it.
    """
    if not _C.in_bad_fork():
        torch.accelerator.empty_cache()


def ipc_collect() -> None:
    """Frees the memory of tensors that were sent to other processes and are no longer used anywhere.

    It also waits for the work on tensors that were received and deleted here, so that their senders can free them. Both
    also happen automatically: the first when a tensor is sent and before the allocator takes memory from the device,
    the second in the background.
    """
    _C.ipc_collect()


# --- Statistics ---


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """Statistics of `device`'s allocator (default: the current device), sorted by name; empty before the first use.

    The names are those that `torch.cuda.memory_stats` documents. ``<what>.<pool>.<figure>``: ``<pool>`` is ``all``,
    ``small_pool`` (blocks up to 1 MiB) or ``large_pool``; ``<figure>`` is ``current``, ``peak``, or ``allocated`` and
    ``freed``, the totals added and removed; ``<what>`` is

    - ``allocation``, ``allocated_bytes``: blocks that tensors hold; ``requested_bytes``: the same before rounding;
    - ``active``, ``active_bytes``: plus those that were freed while another stream still used them;
    - ``inactive_split``, ``inactive_split_bytes``: free blocks in segments that are partly in use;
    - ``segment``, ``reserved_bytes``: ranges of memory that the allocator holds from the device. A segment grows,
      and loses free parts of 2 MiB to `empty_cache`, so there are few;
    - ``reserved_bytes_by_private_pools.<id>``: the same for one pool; the id (0, 1) is written ``0_1``.

    ``oversize_allocations`` and ``oversize_segments``, for blocks of ``max_split_size`` and more, have no ``<pool>``;
    ``max_split_size`` is -1 if there is no limit. Events are counted in ``num_alloc_retries`` (the cache was given back
    to make room), ``num_ooms``, ``num_sync_all_streams`` (waits for the device, to give memory back),
    ``num_device_alloc`` and ``num_device_free`` (how often memory was taken from the device and given back).
    ``num_oom_rejections`` is always 0: no allocation is refused before the device is tried.
    """
    return flattened(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """`memory_stats` with a dictionary for each part of a name; pools are keyed by their id, a tuple."""
    if _C.in_bad_fork():
        return {}
    index = device_index(device)
    if not torch._C._accelerator_isAllocatorInitialized():
        return {}
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    # PyTorch does not pass these statistics through.
    stats["reserved_bytes_by_private_pools"] = _C.reserved_by_private_pools(index)
    stats["num_oom_rejections"] = 0
    return stats


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The statistics of `memory_stats` as a table, in text.

    Args:
        device: default the current device.
        abbreviated: whether to omit the separate rows of small and large blocks.
    """
    index = device_index(device)
    return memory_summary_of(index, memory_stats(index), abbreviated)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Resets ``allocated``, ``freed`` and the events of `memory_stats` to 0."""
    torch.accelerator.reset_accumulated_memory_stats(device_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Resets ``peak`` of `memory_stats` to ``current``."""
    torch.accelerator.reset_peak_memory_stats(device_index(device))


@deprecated("reset_max_memory_allocated resets all peaks; call reset_peak_memory_stats", category=FutureWarning)
def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Deprecated: same as `reset_peak_memory_stats`, which resets all peaks, but emits a FutureWarning."""
    reset_peak_memory_stats(device)


@deprecated("reset_max_memory_cached resets all peaks; call reset_peak_memory_stats", category=FutureWarning)
def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Deprecated: same as `reset_peak_memory_stats`, which resets all peaks, but emits a FutureWarning."""
    reset_peak_memory_stats(device)


def _bytes(read: Callable[[int], int], device: DeviceLike) -> int:
    return 0 if _C.in_bad_fork() else read(device_index(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors on `device` (default: the current one) hold, after rounding."""
    return _bytes(torch.accelerator.memory_allocated, device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The maximum of `memory_allocated` since the process began or the last `reset_peak_memory_stats`."""
    return _bytes(torch.accelerator.max_memory_allocated, device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds from `device` (default: the current one): for tensors and in its cache."""
    return _bytes(torch.accelerator.memory_reserved, device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The maximum of `memory_reserved` since the process began or the last `reset_peak_memory_stats`."""
    return _bytes(torch.accelerator.max_memory_reserved, device)


@deprecated("`memory_cached` has been renamed to `memory_reserved`", category=FutureWarning)
def memory_cached(device: DeviceLike = None) -> int:
    """Deprecated: the old name of `memory_reserved`."""
    return memory_reserved(device)


@deprecated("`max_memory_cached` has been renamed to `max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: DeviceLike = None) -> int:
    """Deprecated: the old name of `max_memory_reserved`."""
    return max_memory_reserved(device)


# --- Limits ---


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total memory of `device` (default: the current one), in bytes. Cached memory is not free."""
    return torch.accelerator.get_memory_info(device_index(device))


def list_gpu_processes(device: DeviceLike = None) -> str:
    """Lists, as text, the processes that use `device` (default: the current one), and how much of its memory they use.

    There is at most one, because every process has its own devices.
    """
    index = device_index(device)
    free, total = torch.accelerator.get_memory_info(index)
    if total == free:
        return f"{NAME}:{index}\nno processes are running"
    return f"{NAME}:{index}\nprocess {os.getpid():>10d} uses {(total - free) / 2**20:>12.3f} MB of device memory"


@deprecated(
    "_set_allocator_settings is deprecated; use torch._C._accelerator_setAllocatorSettings",
    category=FutureWarning,
)
def _set_allocator_settings(env: str) -> None:
    torch._C._accelerator_setAllocatorSettings(env)


def get_allocator_backend() -> str:
    """The name of the device's only allocator, the caching one: ``"native"``."""
    return "native"


def change_current_allocator(allocator: object) -> None:
    """Not supported: the device has only one allocator.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("openreg: the device's allocator cannot be replaced; use a MemPool to keep memory separate")


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits the memory that the allocator may reserve to this fraction of the device's memory.

    Memory that is already reserved stays reserved until the allocator needs more or `empty_cache` is called.

    Args:
        fraction: from 0.0 to 1.0 (the default).
        device: a device with an index; default the current one.

    Raises:
        TypeError: `fraction` is not a float.
        ValueError: `fraction` is out of range, or `device` has no index.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"openreg: the memory fraction is not a float (got {fraction!r}, expected 0.0 to 1.0)")
    if not 0 <= fraction <= 1:
        raise ValueError(f"openreg: the memory fraction is out of range (got {fraction}, expected 0.0 to 1.0)")
    _lazy_init()
    _C.set_memory_fraction(index_or_current(device), fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The value set by `set_per_process_memory_fraction` for `device` (default: the current one).

    Raises:
        ValueError: `device` has no index.
    """
    _lazy_init()
    return _C.get_memory_fraction(index_or_current(device))


# --- Memory without a tensor ---


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None) -> int:
    """Allocates memory for use with other libraries; `caching_allocator_delete` frees it.

    Args:
        size: bytes. 0 allocates nothing.
        device: a device with an index; default the current one.
        stream: the stream whose work uses the memory, a stream of `device` or its native handle (0: the default
            stream); default the current one.

    Returns:
        The device address; 0 if `size` is 0.

    Raises:
        TypeError: `size` is not an int, or `stream` is neither a stream nor an int.
        ValueError: `size` is negative or exceeds 63 bits, a handle is negative or exceeds 64 bits, `device` has no
            index, or `stream` belongs to another device.
        RuntimeError: the device has no stream with this handle.
        torch.OutOfMemoryError: as for a tensor.
    """
    size = check_integer("the size", size, 0, 2**63 - 1)
    index = index_or_current(device)
    _lazy_init()
    if isinstance(stream, torch.Stream):
        if stream.device.type != NAME or stream.device_index != index:
            raise ValueError(
                f"openreg: the stream belongs to another device (got {stream.device}, expected {NAME}:{index})"
            )
        stream_id: int | None = stream.stream_id
    elif stream is None:
        stream_id = None
    else:
        handle = check_integer("the handle given instead of a torch.Stream", stream, 0, 2**64 - 1)
        stream_id = _C.stream_at(index, handle) if handle else 0
    return _C.raw_allocate(size, index, stream_id)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees memory returned by `caching_allocator_alloc`. Work that was queued before may still use it.

    Args:
        mem_ptr: the device address; 0 does nothing.

    Raises:
        RuntimeError: no memory in use begins at `mem_ptr`; it may already have been freed. Nothing changes.
    """
    _C.raw_delete(check_integer("the address", mem_ptr, 0, 2**64 - 1))
