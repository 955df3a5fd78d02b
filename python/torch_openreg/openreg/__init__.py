"""``torch.openreg``: the device's module, with the names that users of ``torch.cuda`` expect.

If ``torch.accelerator`` has a function, the one here is a thin alias of it. Importing this module does not initialise
the device; neither do `is_available`, `device_count`, `is_initialized` and the functions for seeds and random states.

Unless a docstring says otherwise, functions of a `device` raise ValueError if it is not a device or has another type,
and RuntimeError if there is no such device.
"""

from __future__ import annotations

from typing import Any

import torch

from . import amp, faults, graphs, host_memory, legacy, machine, memory, nvtx, profiler, random, statistics, streams
from .amp import get_amp_supported_dtype, is_bf16_supported
from .device import (
    _exchange_device as _exchange_device,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_call as _lazy_call,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
    can_device_access_peer,
    current_blas_handle,
    current_device,
    current_solver_handle,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    init,
    is_available,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from .faults import executor_pid, reset_device
from .graphs import (
    CUDAGraph,
    export_dot,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from .host_memory import (
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    reset_accumulated_host_memory_stats,
    reset_peak_host_memory_stats,
)
from .machine import clock_rate, device_memory_used, memory_usage, power_draw, temperature, utilization
from .memory import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    ipc_collect,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .races import UnsynchronizedAccessError, get_race_detection_mode, set_race_detection_mode
from .random import (
    _get_generator as _get_generator,
    _get_rng_state_offset as _get_rng_state_offset,
    _set_rng_state_offset as _set_rng_state_offset,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .schedules import get_schedule, set_schedule
from .statistics import (
    get_sync_debug_mode,
    launch_stats,
    reset_launch_stats,
    scheduler_stats,
    set_sync_debug_mode,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id as _set_stream_by_id,
    _sleep as _sleep,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "AcceleratorError",
    "CUDAGraph",
    "Event",
    "ExternalStream",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "UnsynchronizedAccessError",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "change_current_allocator",
    "clock_rate",
    "current_blas_handle",
    "current_device",
    "current_solver_handle",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "executor_pid",
    "export_dot",
    "faults",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_race_detection_mode",
    "get_rng_state",
    "get_rng_state_all",
    "get_schedule",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "has_half",
    "has_magma",
    "host_memory",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "launch_stats",
    "legacy",
    "list_gpu_processes",
    "machine",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "nvtx",
    "profiler",
    "power_draw",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_device",
    "reset_launch_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "scheduler_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_race_detection_mode",
    "set_rng_state",
    "set_rng_state_all",
    "set_schedule",
    "set_stream",
    "set_sync_debug_mode",
    "statistics",
    "stream",
    "streams",
    "synchronize",
    "temperature",
    "use_mem_pool",
    "utilization",
    *legacy.TYPES,
]

AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError
globals().update(legacy.TYPES)

has_half = True
"""Whether the device has half precision."""
has_magma = False
"""Whether MAGMA, a linear algebra library for GPUs, is used."""

default_generators: tuple[torch.Generator, ...]
_initialized: bool


def __getattr__(name: str) -> Any:
    # torch reads these as attributes: one changes at the first use, the other depends on the settings.
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
