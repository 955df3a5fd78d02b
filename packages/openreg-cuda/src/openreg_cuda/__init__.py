"""openreg-cuda: CUDA emulation, PyTorch's CUDA device on a machine without a GPU.

It is enabled by ``OPENREG_CUDA=1`` in the environment, the command ``openreg-cuda``, or ``pytest --openreg-cuda``. Then
``import torch`` has a CUDA device that computes on the CPU: torch_openreg, compiled as the CUDA device of a build of
torch without CUDA.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__: list[str] = []


def _autoload() -> None:
    """The entry point: ``import torch`` calls it at its end."""
    if os.environ.get("OPENREG_CUDA", "0") in ("", "0"):
        return
    import torch

    from . import _options, _preconditions

    if _options.device_count() == 0:
        _preconditions.check()
        torch.cuda._lazy_init = _raise_no_devices
        return
    importlib.import_module(".device._loading", __package__).load()


_OF_DEVICE = ("assume", "compute_report", "fake_world", "fits", "get_compute_mode", "set_compute_mode")


def __getattr__(name: str) -> Any:
    # What torch.cuda does not have.
    if name in _OF_DEVICE:
        return getattr(importlib.import_module(".device.openreg", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _raise_no_devices() -> None:
    raise RuntimeError("No CUDA GPUs are available (CUDA_VISIBLE_DEVICES hides those that openreg-cuda emulates)")
