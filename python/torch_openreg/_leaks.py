"""Defines leaks for ``TORCH_OPENREG_DEBUG_MEMORY=1``: memory that no Python object holds at exit."""

from __future__ import annotations

import contextlib
import gc

import torch

from . import _C
from ._slot import NAME


def forget_what_python_holds() -> None:
    """Called at exit. Memory that the program's tensors or other processes still hold then is not a leak.

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
