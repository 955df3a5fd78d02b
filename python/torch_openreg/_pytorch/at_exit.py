"""The end of Python: functions at exit may use the device, whenever they were registered, and what Python still holds
then is no leak for ``TORCH_OPENREG_DEBUG_MEMORY=1``."""

from __future__ import annotations

import atexit
import contextlib
import gc
import threading

import torch

from .. import _C
from .._slot import NAME


class _AfterTheLast:
    """Python releases the arguments of its functions at exit when it has called all of them.

    So this comes after functions that were registered before `import torch`, and before the interpreter ends, when a
    thread that needs it must not run any more.
    """

    def __del__(self) -> None:
        if threading.main_thread().is_alive():  # a program can call the functions itself, or drop them
            return
        exclude_reachable_tensors()
        _C.end_of_python()


def follow_functions_at_exit() -> None:
    """Called once, when the device is loaded."""
    atexit.register(_hold, _AfterTheLast())


def _hold(_: _AfterTheLast) -> None:
    pass


def exclude_reachable_tensors() -> None:
    """Excludes memory that the program's tensors or other processes hold at exit from the leaks that are reported.

    PyTorch never frees some of it when the interpreter ends: gradients, and the graphs of results.
    """
    if not _C.debugs_memory():
        return
    for address in _C.blocks_kept_for_others():
        _C.forget_block(address)
    gc.collect()
    for held in gc.get_objects():
        if issubclass(type(held), torch.Tensor):  # isinstance() reads `__class__`, which makes some objects warn
            _forget(held)
            gradient = _gradient(held)
            if gradient is not None:
                _forget(gradient)


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    try:
        return tensor.grad if tensor.is_leaf else None
    except RuntimeError:  # a view whose history has become invalid
        return None


def _forget(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return
    with contextlib.suppress(RuntimeError):  # a wrapper of torch.func has no storage, or an invalid one
        storage = tensor.untyped_storage()
        if storage.device.type == NAME:  # that of a fake tensor is on the meta device
            _C.forget_block(storage.data_ptr())
