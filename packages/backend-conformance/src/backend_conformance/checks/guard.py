"""The guard: how PyTorch switches devices and streams, and returns to those before.

`c10::impl::DeviceGuardImplInterface` has one object for the device type, registered by `C10_REGISTER_GUARD_IMPL`. It is
called from all threads, those of autograd among them. What a guard has switched it must restore, also when an exception
passes.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from backend_conformance import Device, Level, check, vacuous
from backend_conformance.evidence import refused


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
    try:
        with torch.accelerator.device_index(1):
            raise KeyError
    except KeyError:
        pass
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


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface::setDevice in autograd's threads", needs=("several_devices",))
def backward_runs_on_the_device_of_its_nodes(device: Device) -> None:
    """Autograd's thread for a device has that device current, and the caller's device stays.

    A backward function without an index then allocates on the right device.
    """
    other = device.other
    seen: list[int] = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            seen.append(torch.accelerator.current_device_index())
            return gradient * 2

    twice: Any = Twice
    x = torch.ones(3, device=other, requires_grad=True)
    twice.apply(x).sum().backward()
    assert seen == [1], f"the device in the backward pass of a tensor on {other} is {seen}"
    assert torch.accelerator.current_device_index() == 0
    assert x.grad is not None and x.grad.device == other
    device.cpu_equal(x.grad, [2.0] * 3)


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface: usable in any thread")
def new_threads_can_use_the_device(device: Device) -> None:
    """Threads that come and go can use the device at once, without setting it up."""
    results: list[float] = []

    def fill(number: int) -> None:
        results.append(torch.full((4,), number, device=device.name).sum().item())

    for number in range(16):
        thread = threading.Thread(target=fill, args=(number,))
        thread.start()
        thread.join()
    assert results == [4.0 * number for number in range(16)]


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface::getStream")
def there_is_a_current_stream(device: Device) -> None:
    """The device has a current stream, with the device's type and index.

    Autograd notes it for each node, also on a device with a single stream: the default stream is
    `c10::Stream::DEFAULT`.
    """
    for index in range(device.count):
        stream = torch.accelerator.current_stream(device.at(index))
        assert stream.device == device.at(index), f"the current stream of device {index} is one of {stream.device}"
    assert torch.accelerator.current_stream() == torch.accelerator.current_stream()


@check(
    level=Level.ASYNCHRONOUS,
    hook="DeviceGuardImplInterface::exchangeStream",
    needs=("streams", "several_devices"),
)
def stream_context_switches_and_restores_the_device(device: Device) -> None:
    """`with stream` makes the stream and its device current, and restores both, also after an exception.

    `exchangeStream` itself changes the stream of the stream's device only; the context switches devices.
    """
    other = device.other
    stream = torch.Stream(other)
    before, before_there = torch.accelerator.current_stream(), torch.accelerator.current_stream(other)
    with stream:
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == stream
        assert torch.ones(1, device=device.name).device == other
        assert torch.accelerator.current_stream(device.this) == before, "the stream of the other device changes, too"
    try:
        with stream:
            raise KeyError
    except KeyError:
        pass
    assert torch.accelerator.current_device_index() == 0
    assert torch.accelerator.current_stream() == before
    assert torch.accelerator.current_stream(other) == before_there, "the stream of the device stays current"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::synchronizeDevice", needs=("streams",))
def synchronize_waits_for_all_streams(device: Device) -> None:
    """`torch.accelerator.synchronize()` waits for the work of all streams of the device.

    A function that does nothing, or waits for one stream, makes each timing wrong and each read of pinned memory
    unsafe.
    """
    streams = [torch.Stream(device.this) for _ in range(2)]
    ahead = [device.enough_work(stream) for stream in streams]
    events = [stream.record_event() for stream in streams]
    if not all(ahead) or all(event.query() for event in events):
        vacuous("the host was never seen to run ahead of the device")
    torch.accelerator.synchronize()
    assert all(event.query() for event in events), "work is unfinished after synchronize()"
    assert all(stream.query() for stream in streams)


@check(
    level=Level.ASYNCHRONOUS,
    hook="DeviceGuardImplInterface::synchronizeDevice",
    needs=("streams", "several_devices"),
)
def synchronize_takes_another_device(device: Device) -> None:
    """`torch.accelerator.synchronize(device)` waits for that device, not for the current one."""
    other = device.other
    stream = torch.accelerator.current_stream(other)
    if not device.enough_work(stream):
        vacuous("the host was never seen to run ahead of the device")
    torch.accelerator.synchronize(other)
    assert stream.query(), f"work of {other} is unfinished after it was synchronized"
