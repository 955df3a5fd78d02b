"""The guard: how PyTorch switches devices and streams, and returns to those before.

`c10::impl::DeviceGuardImplInterface` has one object for the device type, registered by `C10_REGISTER_GUARD_IMPL`. It is
called from all threads, those of autograd among them. What a guard has switched it must restore, also when an exception
passes.
"""

from __future__ import annotations

import contextlib
from functools import partial

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import in_threads, refused


@check(
    level=Level.BOOTS, hook="DeviceGuardImplInterface::exchangeDevice, uncheckedSetDevice", needs=("several_devices",)
)
def device_context_restores(device: Device) -> None:
    """`torch.accelerator.device_index` switches, nests, does nothing for None, and restores after an exception.

    It exchanges the device and sets the old one again at its end, by a function that cannot raise.
    """
    other = device.other
    now = torch.accelerator.current_device_index
    with torch.accelerator.device_index(1):
        assert now() == 1
        with torch.accelerator.device_index(0):
            assert now() == 0
            assert torch.ones(1, device=device.name).device == device.this
            with torch.accelerator.device_index(None):
                assert now() == 0
        assert now() == 1, "the inner context does not restore"
        with torch.accelerator.device_index(None):
            assert now() == 1
        assert torch.ones(1, device=device.name).device == other
    assert now() == 0, "the context does not restore"
    with contextlib.suppress(KeyError), torch.accelerator.device_index(1):
        raise KeyError
    assert now() == 0, "the context does not restore after an exception"


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::exchangeDevice", needs=("several_devices",))
def exchange_returns_the_device_before(device: Device) -> None:
    """Exchanging the current device returns the one before."""
    assert device.other
    assert torch._C._accelerator_exchangeDevice(1) == 0
    try:
        assert torch.accelerator.current_device_index() == 1
        assert torch._C._accelerator_exchangeDevice(0) == 1
    finally:
        torch.accelerator.set_device_index(0)


@check(level=Level.TRAINS, hook="device guards in kernels: restore by a destructor", needs=("several_devices",))
def failed_operators_restore_the_device(device: Device) -> None:
    """An operator that raises leaves the current device as it was."""
    other = device.other
    x = torch.ones(2, 3, device=other)
    refused(lambda: x @ x, "a product of (2, 3) and (2, 3)")
    refused(lambda: torch.empty(1 << 46, dtype=torch.uint8, device=other), "64 TiB of memory")
    refused(lambda: x.view(4), "6 elements as 4")
    assert torch.accelerator.current_device_index() == 0
    device.cpu_equal(torch.ones(2, device=device.name), [1.0, 1.0])


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface: usable in any thread")
def new_threads_can_use_the_device(device: Device) -> None:
    """Threads that come and go can use the device at once, without setting it up."""
    results: list[float] = []

    def fill(number: int) -> None:
        results.append(torch.full((4,), number, device=device.name).sum().item())

    for number in range(16):
        in_threads(partial(fill, number))
    assert results == [4.0 * number for number in range(16)]
