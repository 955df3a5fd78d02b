"""Extends the parts of PyTorch's data parallel training that support CUDA only, by name.

Each function is called with the module that it changes, after the import of that module.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from .._slot import NAME


def accept_bfloat16_hooks(module: ModuleType) -> None:
    """``torch.nn.parallel.distributed`` requires NCCL or XCCL for hooks that compress gradients to bfloat16."""
    ddp = module.DistributedDataParallel
    original = ddp._check_comm_hook

    @functools.wraps(original)
    def _check_comm_hook(self: Any, hook: Any) -> None:
        if self.device_type == NAME and callable(hook):
            signature = functools.wraps(hook)(lambda *args: None)
            signature.__name__ = "hook"  # PyTorch recognises those hooks by name
            hook = signature
        original(self, hook)

    ddp._check_comm_hook = _check_comm_hook


def order_callbacks(module: ModuleType) -> None:
    """The hooks of PowerSGD and of quantization free memory that their callbacks, on other streams, have yet to read.

    Here the stream that may reuse the memory waits for the callbacks. On CUDA, PowerSGD's hook blocks the host.
    """
    for name in dir(module):
        if name.endswith("_hook"):
            setattr(module, name, _waiting(getattr(module, name)))


def _waiting(original: Any) -> Any:
    @functools.wraps(original)
    def hook(state: Any, bucket: Any) -> Any:
        future = original(state, bucket)
        if bucket.buffer().device.type == NAME:
            future.wait()
        return future

    return hook


def reduce_gradients_of_gathered(module: ModuleType) -> None:
    """``torch.distributed.nn.functional``: the gradient of ``_all_gather_base`` supports NCCL and XCCL only."""
    function = module._AllGatherBase
    original = function.backward

    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if gradient.device.type != NAME:
            return original(ctx, gradient)
        size = torch.distributed.get_world_size(ctx.group)
        own = gradient.new_empty(gradient.size(0) // size, *gradient.shape[1:])
        torch.distributed.reduce_scatter_tensor(own, gradient.contiguous(), group=ctx.group)
        return None, own, None

    function.backward = staticmethod(backward)


def refuse_workspaces(module: ModuleType) -> None:
    """``torch.distributed._symmetric_memory``: without CUDA, a workspace would raise an error about a dummy class."""
    original = module.get_symm_mem_workspace

    @functools.wraps(original)
    def get_symm_mem_workspace(group_name: str, min_size: int) -> Any:
        if not torch.cuda.is_available():
            raise RuntimeError(f"openreg: SymmetricMemory does not support device type {NAME}, only cuda")
        return original(group_name, min_size)

    module.get_symm_mem_workspace = get_symm_mem_workspace  # type: ignore[attr-defined]
