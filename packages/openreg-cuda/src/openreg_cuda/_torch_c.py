"""The names of ``torch._C`` that a build without CUDA lacks. Those without a meaning raise (`_unsupported`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from . import _collectives, _tuning, _unsupported

_CUDA_VERSION = 13000  # of torch.version.cuda


def supply(module: ModuleType, _C: Any) -> None:
    """Adds the names. Those that exist as classes that cannot be used are replaced."""
    names = {**_unsupported.refusals(), **_tuning.settings(_C), **_collectives.functions(), **_names(module, _C)}
    for name, value in names.items():
        if isinstance(getattr(torch._C, name, None), type) or not hasattr(torch._C, name):
            setattr(torch._C, name, _copy_of(value) if callable(value) and not isinstance(value, type) else value)


def _copy_of(function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo has rules by name, and fails if one object has two.
    return lambda *args, **kwargs: function(*args, **kwargs)


def _names(module: ModuleType, _C: Any) -> dict[str, Any]:
    def ids(stream: torch.Stream) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, 1

    set_device, has_context = _contexts(module, _C)
    return {
        # Devices
        "_cuda_init": module._lazy_init,
        "_cuda_getDeviceCount": _C.device_count,
        "_cuda_getDevice": module.current_device,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": module._exchange_device,
        "_cuda_maybeExchangeDevice": module._maybe_exchange_device,
        "_cuda_isInBadFork": _C.in_bad_fork,
        "_cuda_synchronize": module.synchronize,
        "_cuda_canDeviceAccessPeer": module.can_device_access_peer,
        "_cuda_hasPrimaryContext": has_context,
        "_cuda_getCompiledVersion": lambda: _CUDA_VERSION,
        "_cuda_getArchFlags": lambda: "",
        "_cuda_getCurrentBlasHandle": module.current_blas_handle,
        "_cuda_getCurrentSolverHandle": module.current_solver_handle,
        "_cuda_clearCublasWorkspaces": _C.clear_blas_workspaces,
        "_cudnn_clear_dropout_state": lambda: None,
        "_cuda_get_sync_debug_mode": _C.get_sync_debug_mode,
        "_cuda_set_sync_debug_mode": _C.set_sync_debug_mode,
        "_cuda_sleep": module._sleep,
        # Streams, events, graphs
        "_cuda_getCurrentRawStream": lambda index: module.current_stream(index).cuda_stream,
        "_cuda_getCurrentStream": lambda index: ids(module.current_stream(index)),
        "_cuda_getDefaultStream": lambda index: ids(module.default_stream(index)),
        "_cuda_getStreamFromExternal": lambda pointer, index: ids(module.get_stream_from_external(pointer, index)),
        "_cuda_setStream": module._set_stream_by_id,
        "_cuda_isCurrentStreamCapturing": module.is_current_stream_capturing,
        "_CudaStreamBase": module.Stream,
        "_CUDAGraph": module.CUDAGraph,
        "_graph_pool_handle": module.graph_pool_handle,
        # Memory
        "_MemPool": module.MemPool,
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
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": _enable_cache,
        "_cuda_getMemoryFraction": module.get_per_process_memory_fraction,
        "_cuda_setMemoryFraction": module.set_per_process_memory_fraction,
        "_cuda_getMemoryMetadata": _C.get_memory_metadata,
        "_cuda_memoryMetadataSupported": lambda: True,
        "_cuda_setMemoryMetadata": _C.set_memory_metadata,
        "_cuda_allocationTraceback": _C.allocation_traceback,
        "_cuda_record_memory_history": _record_history(module),
        "_cuda_isHistoryEnabled": _C.records_memory_history,
        "_cuda_attach_out_of_memory_observer": _observe(module),
        "_cuda_hostMemoryStats": module.host_memory_stats_as_nested_dict,
        "_cuda_resetPeakHostMemoryStats": module.reset_peak_host_memory_stats,
        "_cuda_resetAccumulatedHostMemoryStats": module.reset_accumulated_host_memory_stats,
        "_host_emptyCache": lambda: torch.accelerator.empty_host_cache(),
        **_uses_of_pools(_C),
        # Inductor's trees of graphs
        "_cuda_CUDAAllocator_AllocatorState": _C.Checkpoint,
        "_cuda_getCheckpointState": _C.checkpoint_pool,
        "_cuda_setCheckpointPoolState": _C.return_to_checkpoint,
        "_cuda_checkPoolLiveAllocations": lambda device, pool, live: _C.pool_holds_exactly(device, pool, list(live)),
        "_has_Standard_Deleter": _C.owns_memory,
        "_free_And_Remove_DeleterFn": _C.free_memory,
        "_construct_CUDA_Tensor_From_Storage_And_Metadata": _C.tensor_on_storage,
        "_tensors_data_ptrs_at_indices_equal": _C.have_addresses,
        "_set_storage_access_error_msg": _C.forbid_storage,
        "_set_storage_data_ptr_access_error_msg": _C.forbid_data,
        # Modules
        "_nvtx": _ranges(module),
    }


def _contexts(module: ModuleType, _C: Any) -> tuple[Callable[[Any], None], Callable[[int], bool]]:
    """set_device, and whether a device has a context: as in CUDA, if it was set or has had memory."""
    cuda: Any = torch.cuda
    were_set: set[int] = set()

    @functools.wraps(module.set_device)
    def set_device(device: Any) -> None:
        module.set_device(device)
        were_set.add(module.current_device())

    def has_context(index: int) -> bool:
        return index in were_set or (_C.is_initialized() and module.memory_stats(index)["allocation.all.allocated"] > 0)

    cuda.set_device = set_device
    return set_device, has_context


def _enable_cache(enabled: bool) -> None:
    if not enabled:
        raise NotImplementedError("openreg: the caching allocator cannot be disabled (got False)")


def _record_history(module: ModuleType) -> Callable[..., None]:
    # Without the device, which torch.cuda's own function does not pass on.
    names = [name for name in inspect.signature(module.memory._record_memory_history).parameters if name != "device"]

    def record(*args: Any, **kwargs: Any) -> None:
        module.memory._record_memory_history(**dict(zip(names, args, strict=False)), **kwargs)

    return record


def _observe(module: ModuleType) -> Callable[[Callable[[int, int, int, int], object]], None]:
    def attach(observer: Callable[[int, int, int, int], object]) -> None:
        def hook(device: int, size: int) -> bool:
            free, _ = module.mem_get_info(device)
            observer(device, size, module.memory_allocated(device), free)
            return False

        module.memory.register_out_of_memory_hook(hook)

    return attach


def _uses_of_pools(_C: Any) -> dict[str, Callable[[int, tuple[int, int]], None]]:
    # As PyTorch calls them: each begin is followed by an end, and by a release, on the same thread.
    uses: dict[tuple[int, tuple[int, int]], list[int]] = {}

    def begin(device: int, pool: tuple[int, int]) -> None:
        uses.setdefault((device, pool), []).append(_C.begin_pool_use(device, pool))

    def end(device: int, pool: tuple[int, int]) -> None:
        begun = uses.get((device, pool))
        if not begun:
            raise RuntimeError(f"openreg: the pool is not in use (got {pool} on cuda:{device})")
        _C.end_pool_use(device, begun.pop())

    def release(device: int, pool: tuple[int, int]) -> None:
        # The end has released it.
        pass

    return {
        "_cuda_beginAllocateCurrentThreadToPool": begin,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
    }


def _ranges(module: ModuleType) -> SimpleNamespace:
    nvtx = module.nvtx
    return SimpleNamespace(
        rangePushA=nvtx.range_push,
        rangePop=nvtx.range_pop,
        rangeStartA=nvtx.range_start,
        rangeEnd=nvtx.range_end,
        markA=nvtx.mark,
    )
