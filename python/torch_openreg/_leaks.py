"""Which memory counts as leaked where ``TORCH_OPENREG_DEBUG_MEMORY=1``: what no Python object holds at exit."""

from __future__ import annotations

import gc

import torch

from . import _C


def forget_what_python_holds() -> None:
    """Called at exit. What the program's tensors or other processes still hold then is no leak.

    PyTorch keeps some of that for good when the interpreter ends: gradients, and the graphs of results.
    """
    if not _C.debugs_memory():
        return
    for address in _C.blocks_kept_for_others():
        _C.forget_block(address)
    gc.collect()
    for held in gc.get_objects():
        if issubclass(type(held), torch.Tensor):  # isinstance() would ask objects that answer with warnings
            _forget(held)
            gradient = _gradient(held)
            if gradient is not None:
                _forget(gradient)


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    try:
        return tensor.grad if tensor.is_leaf else None
    except RuntimeError:  # a view whose history has become invalid may not be asked
        return None


def _forget(tensor: torch.Tensor) -> None:
    if tensor.device.type == "openreg" and tensor.layout is torch.strided and not tensor.is_nested:
        try:
            address = tensor.untyped_storage().data_ptr()
        except RuntimeError:  # one of those that compilers trace with, which have no memory
            return
        _C.forget_block(address)
