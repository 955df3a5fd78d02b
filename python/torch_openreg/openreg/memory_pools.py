"""Separate pools of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import _C
from .arguments import DeviceLike, check_type, index_or_current, truth
from .device import _lazy_init, current_device
from .memory_history import memory_snapshot


class MemPool:
    """Memory of the current device that is cached separately, as `torch.cuda.MemPool`. See `use_mem_pool`.

    Deleting the object waits for the device's work, and returns unused memory of the pool to the device. Tensors that
    were allocated in it stay valid; once they are freed, `empty_cache` returns their memory.

    Args:
        allocator: None; the device has only one allocator.
        use_on_oom: whether unused memory of the pool may serve other allocations that would otherwise fail.
        no_split: whether each block has a segment of its own, so that none is split.

    Raises:
        TypeError: `allocator` is not None, or another argument has no truth value.
    """

    def __init__(self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise TypeError(f"openreg: a pool's allocator cannot be chosen (got {allocator!r}, expected None)")
        for_others, whole = truth("use_on_oom", use_on_oom), truth("no_split", no_split)
        _lazy_init()
        device = current_device()
        self._id = _C.make_pool(device, for_others, whole)
        self._device = device

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id in snapshots and statistics."""
        return self._id

    @property
    def device(self) -> int:
        """The index of the device that was current when the pool was created."""
        return self._device

    @property
    def allocator(self) -> None:
        """None: the device's own allocator."""
        return None

    def use_count(self) -> int:
        """The number of uses of the pool on its device: this object, each active `use_mem_pool`, each graph."""
        return _C.pool_uses(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """`memory_snapshot` of this pool, on all devices."""
        return memory_snapshot(self._id, include_traces=include_traces)

    _release = staticmethod(_C.release_pool)  # bound to the class, because the module may be gone before the last pools

    def __del__(self) -> None:
        if hasattr(self, "_device"):  # otherwise its creation failed
            self._release(self._device, self._id)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Context manager: allocations of the calling thread come from `pool`. If nested, the innermost applies.

    Allocations of other threads do not, even if the threads are started inside. This also applies to the allocations
    of ``backward()``, which autograd runs on its own threads.

    Args:
        pool: the pool to allocate from.
        device: the device whose allocations are affected, with an index; default the current device.
    """
    check_type("the pool", pool, MemPool, "a MemPool")
    index = index_or_current(device)
    use = _C.begin_pool_use(index, pool.id)
    try:
        yield
    finally:
        _C.end_pool_use(index, use)
