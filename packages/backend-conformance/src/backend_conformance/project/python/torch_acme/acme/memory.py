"""Memory. The functions of ``torch.accelerator`` read the statistics of csrc/allocator.cpp."""

from __future__ import annotations

from typing import Any

import torch
from torch.accelerator import empty_cache as empty_cache

from .device import index_of


def memory_allocated(device: Any = None) -> int:
    return torch.accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device: Any = None) -> int:
    return torch.accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device: Any = None) -> int:
    return torch.accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device: Any = None) -> int:
    return torch.accelerator.max_memory_reserved(index_of(device))


def memory_stats(device: Any = None) -> dict[str, Any]:
    return torch.accelerator.memory_stats(index_of(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    return torch.accelerator.get_memory_info(index_of(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))
