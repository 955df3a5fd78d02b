"""Hooks that run when memory runs out, before an error is raised."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch.utils.hooks import RemovableHandle

from .. import _C

OutOfMemoryHook = Callable[[int, int], object]

_hooks: OrderedDict[int, OutOfMemoryHook] = OrderedDict()


def register_out_of_memory_hook(hook: OutOfMemoryHook) -> RemovableHandle:
    """Registers ``hook(device, bytes)``, called when an allocation of that many bytes does not fit on that device.

    It runs on the thread that allocates, after the allocator has given its cache back. If it returns true, it has freed
    memory, and the allocation is tried again; if it still does not fit, the hook is called again. If it returns false,
    the hook registered before it is called; with no hook left torch.OutOfMemoryError is raised. An exception of a hook
    is raised by the allocation. If memory runs out within a hook, the error is raised at once.

    Args:
        hook: takes the device's index and the number of bytes.

    Returns:
        A handle whose ``remove()`` removes the hook; as a context manager it does so when its body ends.

    Raises:
        TypeError: `hook` is not callable.
    """
    if not callable(hook):
        raise TypeError(f"openreg: the hook is not callable (got {hook!r}, expected a function of device and bytes)")
    handle = RemovableHandle(_hooks)
    _hooks[handle.id] = hook
    _C.set_out_of_memory_hook(_call_hooks)
    return handle


def _call_hooks(device: int, size: int) -> bool:
    return any(hook(device, size) for hook in reversed(list(_hooks.values())))
