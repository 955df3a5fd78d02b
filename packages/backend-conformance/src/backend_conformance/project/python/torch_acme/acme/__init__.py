"""The module ``torch.acme``. PyTorch looks up these names, in part without a check that they exist."""

from __future__ import annotations

from typing import Any

import torch

from . import _dlpack as _dlpack
from .amp import get_amp_supported_dtype, is_bf16_supported
from .device import (
    current_device,
    device,
    device_count,
    get_device_name,
    get_device_properties,
    is_available,
    set_device,
    synchronize,
)
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, current_stream, set_stream, stream

__all__ = [
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_generators",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def is_initialized() -> bool:
    """Whether the program has used a device. Meshes and fake tensors ask."""
    return bool(torch.ops.torch_acme.is_initialized())


def _is_in_bad_fork() -> bool:
    """Whether this is a forked child of a process that has used a device. ``torch.manual_seed`` asks."""
    return bool(torch.ops.torch_acme.in_bad_fork())


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # checkpoints ask, and without it do not restore the random numbers of the device
        return is_initialized()
    if name == "default_generators":  # by index; for compiled programs with random numbers
        return tuple(torch.ops.torch_acme.default_generator(i) for i in range(device_count()))
    raise AttributeError(f"module 'torch.acme' has no attribute {name!r}")
