"""Installs the functions of the device's module in ``torch.cuda``, as a build with CUDA has them."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import torch

from . import _options, _patches, _properties, _torch_c
from .device.fits.profiles import DEFAULT, PROFILES

_PACKAGES = ("graphs", "memory", "random", "streams", "nvtx", "profiler")
# Those of torch.cuda that the device's module does not replace: packages, whose contents it replaces below, and classes
# that are PyTorch's own.
_KEPT = {*_PACKAGES, "amp", "AcceleratorError", "OutOfMemoryError"}

_module: ModuleType | None = None


def set_environment() -> None:
    """Sets what the device reads from the environment: how many devices there are, and how much memory they have."""
    count, of = _options.device_count(), _options.all_devices()
    if count is not None:
        os.environ["TORCH_OPENREG_DEVICES"] = str(count)
    if of is not None and of != count:
        _options.set_for_children(of)
    _properties.limit_memory(_options.current().profile)


def is_installed(module: ModuleType) -> bool:
    """Whether torch.cuda has the functions of `module`."""
    return module is _module


def install(module: ModuleType) -> None:
    """Gives torch.cuda the functions of `module`, and PyTorch what it lacks without CUDA."""
    global _module
    cuda = torch.cuda
    originals = vars(cuda).copy()
    private = [name for name in vars(module) if name.startswith("_") and not name.startswith("__")]
    _fill(cuda, module, [name for name in (*module.__all__, *private) if name not in _KEPT])
    for name in _PACKAGES:
        ours = getattr(module, name)
        theirs = importlib.import_module(f"torch.cuda.{name}")
        # What it has imported from torch.cuda.
        _fill(theirs, cuda, [each for each, value in vars(theirs).items() if originals.get(each, theirs) is value])
        _fill(theirs, ours, [each for each in vars(ours) if _is_of(ours, each)])
    # Attributes that change with the device's state are the module's.
    for name in ("_initialized", "default_generators"):
        delattr(cuda, name)

    def __getattr__(name: str) -> Any:
        try:
            return module.__getattr__(name)
        except AttributeError:
            raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}") from None

    cuda.__getattr__ = __getattr__  # type: ignore[method-assign]
    gpu = _options.current().gpu
    _C = importlib.import_module(".device._C", __package__)
    _C.use_cuda_segments(True)  # so that reserved memory, retries and the place where memory runs out are CUDA's
    _properties.answer_from_the_profile(module, gpu)
    if gpu is not PROFILES[DEFAULT].gpu:
        _C.set_gpu(*gpu.capability, gpu.multiprocessors, gpu.threads)
    _torch_c.supply(module, _C)
    _patches.originals.update(originals)
    _patches.apply(module, _C)
    _module = module
    print(f"openreg-cuda: CUDA is emulated on the CPU ({gpu.name}): results and times are the CPU's", file=sys.stderr)


def _is_of(module: ModuleType, name: str) -> bool:
    """Whether a name is defined by the package of `module`: not imported from elsewhere."""
    defined = getattr(getattr(module, name), "__module__", None)
    return defined is not None and defined.startswith(module.__name__.rpartition(".")[0]) and not name.startswith("__")


def _fill(theirs: Any, ours: Any, names: list[str]) -> None:
    for name in names:
        if name in vars(ours):
            setattr(theirs, name, getattr(ours, name))
