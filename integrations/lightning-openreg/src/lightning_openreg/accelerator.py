"""The accelerator: what Lightning asks of a device."""

from __future__ import annotations

from typing import Any

import torch

DEVICE = "openreg"


class OpenregAccelerator:
    """The device openreg. It derives from no class of Lightning: it is registered as one of `lightning` and of
    `pytorch_lightning`, whichever is used."""

    def setup_device(self, device: torch.device) -> None:
        """Makes the device current in this process.

        Raises:
            ValueError: it is of another type; the strategy was given another device.
        """
        if device.type != DEVICE:
            raise ValueError(f"openreg: the strategy has a device of another type (got {device}, expected {DEVICE})")
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
            devices: how many, -1 for all; "0,1" and [0, 1] are indices.

        Raises:
            ValueError: there are not so many, or an index occurs twice or is out of range.
        """
        count = torch.accelerator.device_count()
        if isinstance(devices, str):
            parts = [int(part) for part in devices.split(",") if part.strip()]
            devices = parts if "," in devices else parts[0]
        if isinstance(devices, int):
            indices = list(range(count if devices == -1 else devices))
        else:
            indices = list(devices)
        if not indices or len(set(indices)) < len(indices) or not set(indices) <= set(range(count)):
            raise ValueError(
                f"openreg: wrong devices (got {devices!r}, expected 1 to {count} of the indices 0 to {count - 1}; "
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
