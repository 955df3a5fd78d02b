"""The device's interface for torch.compile. This module imports torch._dynamo, which takes a second, so `patches`
imports this module only after a program has imported torch._dynamo."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch.accelerator._utils import _get_device_index

from ... import openreg
from ..._slot import NAME


class OpenregInterface(DeviceInterface):
    """The device for Dynamo and Inductor. The functions are those of `torch.openreg`, which documents them."""

    device = openreg.device
    Event = openreg.Event
    Stream = openreg.Stream
    current_device = staticmethod(openreg.current_device)
    set_device = staticmethod(openreg.set_device)  # type: ignore[assignment]
    exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)  # type: ignore[assignment]
    maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)  # type: ignore[assignment]
    device_count = staticmethod(openreg.device_count)
    is_available = staticmethod(openreg.is_available)
    stream = staticmethod(openreg.stream)
    current_stream = staticmethod(openreg.current_stream)
    set_stream = staticmethod(openreg.set_stream)
    _set_stream_by_id = staticmethod(openreg._set_stream_by_id)
    synchronize = staticmethod(openreg.synchronize)
    memory_allocated = staticmethod(openreg.memory_allocated)

    class Worker(DeviceInterface.Worker):
        """The interface for compiler processes. It caches no properties, because these are settings."""

        set_device = staticmethod(openreg.set_device)
        current_device = staticmethod(openreg.current_device)
        get_device_properties = staticmethod(openreg.get_device_properties)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return int(openreg.current_stream(device_idx).native_handle)  # type: ignore[attr-defined]

    @staticmethod
    def get_compute_capability(device: torch.types.Device = None) -> str:
        """Empty, as for the CPU: code is compiled for the machine, not for a generation of devices."""
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return openreg.is_bf16_supported(including_emulation)


def register_interface(_: ModuleType) -> None:
    """Registers the device with Dynamo, by its name without and with an index."""
    register_interface_for_device(NAME, OpenregInterface)
    for index in range(openreg.device_count()):
        register_interface_for_device(f"{NAME}:{index}", OpenregInterface)
    # As torch.compiler.assume_constant_result does: the values are constant for a process.
    for function in (openreg.is_available, openreg.device_count):
        function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def register_device_context(_: ModuleType) -> None:
    """Makes ``with torch.openreg.device(i)`` traceable, as ``torch.cuda.device`` and ``torch.accelerator`` are."""
    from torch._dynamo.variables.ctx_manager import GenericDeviceVariable, register_device_context_manager

    class DeviceVariable(GenericDeviceVariable):
        _exchange_fn = staticmethod(torch._C._accelerator_exchangeDevice)
        _maybe_exchange_fn = staticmethod(torch._C._accelerator_maybeExchangeDevice)
        _get_device_index_fn = staticmethod(_get_device_index)

        def module_name(self) -> str:
            return f"torch.{NAME}"

        def python_type(self) -> type[Any]:
            return openreg.device

    register_device_context_manager(openreg.device, DeviceVariable)
