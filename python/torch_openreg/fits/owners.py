"""Finds out what memory is for: which of it belongs to parameters, buffers, gradients and the state of optimizers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .. import _C
from .modules import Modules
from .report import Kind


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory that a tensor consists of: DTensor and others wrap one or several."""
    wrapper: Any = tensor
    if not hasattr(wrapper, "__tensor_flatten__"):
        yield tensor
        return
    names, _ = wrapper.__tensor_flatten__()
    for name in names:
        part = getattr(wrapper, name)
        if isinstance(part, torch.Tensor):  # a DTensor has its mesh, too
            yield from parts(part)


class Owners:
    """What is known about memory: for a block, the strongest of its marks (`KINDS` has them in order)."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self.marks: list[tuple[int, int, int, str, str]] = []
        """The device, the length of its log at that time, the address, the kind and the module."""
        self._lengths: dict[int, int] = {}
        self.optimizers = False
        """Whether there is one."""
        self._half_precision = False  # whether a module has such parameters
        self._modules_of: dict[int, str] = {}  # by the id of a parameter

    def of_module(self, root: nn.Module) -> None:
        """Marks the parameters, their gradients and the buffers of a module and those in it."""
        self._modules.learn(root)
        self._lengths.clear()
        for module in root.modules():
            self._of_module(module)

    def _of_module(self, module: nn.Module) -> None:
        name = self._modules.name(module)
        for parameter in module.parameters(recurse=False):
            self._half_precision |= parameter.dtype in (torch.float16, torch.bfloat16)
            self._modules_of[id(parameter)] = name
            self._mark(parameter, Kind.PARAMETERS, name)
            self._gradients(parameter, name)
        for buffer in module._buffers.values():
            if buffer is not None:
                self._mark(buffer, Kind.BUFFERS, name)

    def of_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Marks its parameters, their gradients, and its state."""
        self.optimizers = True
        self._lengths.clear()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                # The copy in full precision that an optimizer updates instead of the parameters of its modules (ZeRO,
                # Megatron). If it is a parameter of a module, that mark is stronger.
                is_copy = self._half_precision and parameter.dtype is torch.float32 and type(parameter) is torch.Tensor
                self._mark(parameter, Kind.OPTIMIZER_STATE if is_copy else Kind.PARAMETERS, "")
                self._gradients(parameter, "")
        for parameter, state in list(optimizer.state.items()):
            self._state(state, self._modules_of.get(id(parameter), ""))

    def _state(self, value: Any, module: str) -> None:
        if isinstance(value, torch.Tensor):
            self._mark(value, Kind.OPTIMIZER_STATE, module)
        elif isinstance(value, dict):
            for each in list(value.values()):
                self._state(each, module)
        elif isinstance(value, list | tuple):
            for each in value:
                self._state(each, module)

    def of_everything(self) -> None:
        """Marks what all modules and optimizers of the process hold, also if they were never called."""
        objects = gc.get_objects()
        # isinstance() reads `__class__`, which makes some objects warn.
        modules = [each for each in objects if issubclass(type(each), nn.Module)]
        optimizers = [each for each in objects if issubclass(type(each), torch.optim.Optimizer)]
        del objects
        self._lengths.clear()
        for module in modules:
            if "_parameters" in vars(module):  # else it has not been initialised
                self._of_module(module)
        for optimizer in optimizers:
            if "param_groups" in vars(optimizer):
                self.of_optimizer(optimizer)

    def _gradients(self, parameter: torch.Tensor, module: str) -> None:
        if parameter.grad is not None:
            self._mark(parameter.grad, Kind.GRADIENTS, module)
        accumulated = getattr(parameter, "main_grad", None)  # where fused kernels accumulate it (Megatron)
        if isinstance(accumulated, torch.Tensor):
            self._mark(accumulated, Kind.GRADIENTS, module)

    def _mark(self, tensor: torch.Tensor, kind: str, module: str) -> None:
        for part in parts(tensor):
            device, address = _C.memory_of(part)
            if address == 0:
                continue
            if device not in self._lengths:
                self._lengths[device] = _C.allocation_log_length(device)
            self.marks.append((device, self._lengths[device], address, kind, module))
