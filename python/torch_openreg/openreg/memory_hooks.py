"""What a program does when memory runs out, before that is an error."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch.utils.hooks import RemovableHandle

from .. import _C

OutOfMemoryHook = Callable[[int, int], object]

_hooks: OrderedDict[int, OutOfMemoryHook] = OrderedDict()


def register_out_of_memory_hook(hook: OutOfMemoryHook) -> RemovableHandle:
    """From now on ``hook(device, bytes)`` is called when an allocation of so many bytes does not fit on that device.

    It runs on the thread that allocates, after the allocator has given its cache back. If it returns true, it has freed
    memory, and the allocation is tried again; it is called again if that does not fit either. If it returns false, the
    hook before it is called, and with no hook left torch.OutOfMemoryError is raised. What a hook raises, the allocation
    raises. Memory that runs out within a hook is an error at once.

    Args:
        hook: takes the device's index and the bytes.

    Returns:
        a handle, whose ``remove()`` ends it; as a context manager it ends the hook when its body ends.

    Raises:
        TypeError: `hook` cannot be called.
    """
    if not callable(hook):
        raise TypeError(f"openreg: a hook is a function of device and bytes (got {hook!r})")
    handle = RemovableHandle(_hooks)
    _hooks[handle.id] = hook
    _C.set_out_of_memory_hook(_ask)
    return handle


def _ask(device: int, size: int) -> bool:
    return any(hook(device, size) for hook in reversed(list(_hooks.values())))
