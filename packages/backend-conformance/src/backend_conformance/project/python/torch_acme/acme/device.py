"""Which devices there are, and which is current. ``torch.accelerator`` has the same functions for every device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


def device_count() -> int:
    return int(torch._C._accelerator_hooks_device_count())


def is_available() -> bool:
    """Must not use the device: a program that only asks must still be able to fork."""
    return device_count() > 0


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(device: Any) -> None:
    index = index_of(device)
    if index >= 0:  # -1 changes nothing
        torch.accelerator.set_device_index(index)


def synchronize(device: Any = None) -> None:
    torch.accelerator.synchronize(index_of(device))


class device:
    """Makes a device current in a ``with`` block: an int, a torch.device, or None. ``torch.load`` uses it."""

    def __init__(self, device: Any) -> None:
        self.index = -1 if device is None else index_of(device)
        self.previous = -1

    def __enter__(self) -> None:
        self.previous = current_device()
        set_device(self.index)

    def __exit__(self, *_: object) -> None:
        set_device(self.previous)


def index_of(device: Any) -> int:
    """The index in an int, a str or a torch.device. None, and a device without an index, mean the current one."""
    if isinstance(device, int):
        return device
    if device is not None:
        device = torch.device(device)
        if device.type != "acme":
            raise ValueError(f"acme: this is not an acme device (got {device})")
        if device.index is not None:
            return int(device.index)
    return current_device()


def get_device_name(device: Any = None) -> str:
    return str(get_device_properties(device).name)


def get_device_properties(device: Any = None) -> SimpleNamespace:
    _, total = torch.accelerator.get_memory_info(index_of(device))
    return SimpleNamespace(name="acme", total_memory=total, major=0, minor=0, multi_processor_count=1)
