"""The accelerator: the interface that Lightning expects of a device."""

from __future__ import annotations

import re
from typing import Any

import torch

DEVICE = "openreg"


def _indices(devices: int | str | list[int], count: int) -> list[int]:
    """The indices that `devices` requests of `count` devices; none if `devices` is malformed."""
    if isinstance(devices, str):
        parts = [part.strip() for part in devices.split(",") if part.strip()]
        if not all(re.fullmatch(r"-?\d+", part) for part in parts):
            return []
        if "," in devices or not parts:
            return [int(part) for part in parts]
        devices = int(parts[0])
    if isinstance(devices, bool):
        return []
    if isinstance(devices, int):
        return list(range(count if devices == -1 else devices))
    return list(devices)


class OpenregAccelerator:
    """The device openreg. It does not derive from Lightning's `Accelerator`, because there are two of these: it is
    registered as a subclass of that of `lightning` or of `pytorch_lightning`, whichever is used."""

    def setup_device(self, device: torch.device) -> None:
        """Makes the device current in this process.

        Raises:
            ValueError: the device is not an openreg device.
        """
        if device.type != DEVICE:
            raise ValueError(f"openreg: the strategy's device is of another type (got {device}, expected {DEVICE})")
        torch.accelerator.set_device_index(device.index or 0)

    def setup(self, trainer: Any) -> None:
        torch.accelerator.empty_cache()

    def teardown(self) -> None:
        torch.accelerator.empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """What `DeviceStatsMonitor` logs: `torch.accelerator.memory_stats`."""
        return torch.accelerator.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """The indices of the devices.

        Args:
            devices: the number of devices, -1 for all; "0,1" and [0, 1] are indices.

        Raises:
            ValueError: there are too few devices, or an index occurs twice or is out of range.
        """
        count = torch.accelerator.device_count()
        indices = _indices(devices, count)
        if not indices or len(set(indices)) < len(indices) or not set(indices) <= set(range(count)):
            raise ValueError(
                f"openreg: invalid devices (got {devices!r}, expected 1 to {count} of the indices 0 to {count - 1}; "
                "TORCH_OPENREG_DEVICES sets the number of devices)"
            )
        return indices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device(DEVICE, index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator is not None and accelerator.type == DEVICE

    @staticmethod
    def name() -> str:
        return DEVICE
