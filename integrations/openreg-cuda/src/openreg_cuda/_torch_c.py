"""The names of ``torch._C`` that a build of torch without CUDA lacks, as far as they have a meaning for the device."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_CUDA_VERSION = 13000  # of torch.version.cuda


def supply(module: ModuleType, _C: Any) -> None:
    """Adds the names. Those that exist as classes that cannot be used are replaced."""
    for name, value in _names(module, _C).items():
        if isinstance(getattr(torch._C, name, None), type) or not hasattr(torch._C, name):
            setattr(torch._C, name, value if isinstance(value, type) else _copy_of(value))


def _copy_of(function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo has rules by name, and fails if one object has two.
    return lambda *args, **kwargs: function(*args, **kwargs)


def _names(module: ModuleType, _C: Any) -> dict[str, Any]:
    def ids(stream: torch.Stream) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, 1

    return {
        # Devices
        "_cuda_init": module._lazy_init,
        "_cuda_getDeviceCount": _C.device_count,
        "_cuda_getDevice": module.current_device,
        "_cuda_setDevice": module.set_device,
        "_cuda_exchangeDevice": module._exchange_device,
        "_cuda_maybeExchangeDevice": module._maybe_exchange_device,
        "_cuda_isInBadFork": _C.in_bad_fork,
        "_cuda_synchronize": module.synchronize,
        "_cuda_canDeviceAccessPeer": module.can_device_access_peer,
        "_cuda_hasPrimaryContext": lambda index: _C.is_initialized(),
        "_cuda_getCompiledVersion": lambda: _CUDA_VERSION,
        "_cuda_getArchFlags": lambda: "",
        "_cuda_getCurrentBlasHandle": module.current_blas_handle,
        "_cuda_getCurrentSolverHandle": module.current_solver_handle,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_get_sync_debug_mode": _C.get_sync_debug_mode,
        "_cuda_set_sync_debug_mode": _C.set_sync_debug_mode,
        "_cuda_sleep": module._sleep,
        # Streams, events, graphs
        "_cuda_getCurrentRawStream": lambda index: int(module.current_stream(index).native_handle),
        "_cuda_getCurrentStream": lambda index: ids(module.current_stream(index)),
        "_cuda_getDefaultStream": lambda index: ids(module.default_stream(index)),
        "_cuda_getStreamFromExternal": lambda pointer, index: ids(module.get_stream_from_external(pointer, index)),
        "_cuda_setStream": module._set_stream_by_id,
        "_cuda_isCurrentStreamCapturing": module.is_current_stream_capturing,
        "_CudaStreamBase": module.Stream,
        "_CudaEventBase": module.Event,
        "_CUDAGraph": module.CUDAGraph,
        "_graph_pool_handle": module.graph_pool_handle,
        # Memory
        "_MemPool": module.MemPool,
        "_cuda_CUDAAllocator_AllocatorState": type("_cuda_CUDAAllocator_AllocatorState", (), {}),
        "_set_cached_tensors_enabled": lambda enabled: None,
        "_cuda_emptyCache": module.empty_cache,
        "_cuda_memoryStats": module.memory_stats_as_nested_dict,
        "_cuda_resetPeakMemoryStats": module.reset_peak_memory_stats,
        "_cuda_resetAccumulatedMemoryStats": module.reset_accumulated_memory_stats,
        "_cuda_memorySnapshot": lambda *pool: module.memory._snapshot(),
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: module.caching_allocator_alloc(
            size, stream=stream
        ),
        "_cuda_cudaCachingAllocator_raw_delete": module.caching_allocator_delete,
        "_cuda_getAllocatorBackend": module.get_allocator_backend,
        "_cuda_ipc_collect": module.ipc_collect,
        # Collectives
        "_nccl_version": lambda: (2 << 32) | (27 << 16),
        "_nccl_version_suffix": lambda: b"",
    }
