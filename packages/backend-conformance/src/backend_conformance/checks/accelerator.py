"""`torch.accelerator`: the interface of programs that run on any device.

Its functions call the guard and the allocator, or the device's module. The groups `device`, `allocator`, `streams`
and `graphs` check what the functions do; this group checks that all of them accept what programs pass, and agree with
each other.
"""

from __future__ import annotations

import threading

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import expect_error


@check(level=Level.BOOTS, hook="torch.utils.rename_privateuse1_backend; isAvailable")
def accelerator_is_the_device(device: Device) -> None:
    """`current_accelerator` is the device, with and without a check that it is available.

    PyTorch knows the accelerator from the registered name and the hooks.
    """
    assert torch.accelerator.is_available() is True
    assert torch.accelerator.current_accelerator() == torch.device(device.name)
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device(device.name)
    assert device.count >= 1


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::deviceCount; is_available, device_count of the module")
def counts_agree(device: Device) -> None:
    """The device count of `torch.accelerator`, of the module, and of what can be used is the same.

    The functions of `torch.accelerator` with these names call those of the device's module, not C++; so do optimizers,
    `torch.load`, `fork_rng` and `torchrun`. The guard's may differ.
    """
    assert device.module.is_available() is True
    assert isinstance(device.module.device_count(), int)
    assert device.module.device_count() == device.count, "the module and torch.accelerator disagree"
    for index in range(device.count):
        assert torch.ones(1, device=device.at(index)).device == device.at(index)
    expect_error(lambda: torch.ones(1, device=device.at(device.count)), Exception)


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::setDevice", needs=("several_devices",))
def current_device_is_set(device: Device) -> None:
    """`set_device_index` accepts an index, a name and a `torch.device`; factories without an index then use it.

    The module's `current_device`, if there is one, must agree: both read the same state.
    """
    try:
        for chosen in (1, f"{device.name}:1", device.other):
            torch.accelerator.set_device_index(0)
            torch.accelerator.set_device_index(chosen)
            assert torch.accelerator.current_device_index() == 1
            assert torch.ones(2, device=device.name).device == device.other
            assert torch.zeros_like(torch.ones(1), device=device.name).device == device.other
            assert torch.ones(2, device=device.this).device == device.this
            if hasattr(device.module, "current_device"):
                assert device.module.current_device() == 1, "the module reports another current device"
    finally:
        torch.accelerator.set_device_index(0)
    assert torch.ones(2, device=device.name).device == device.this


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::getDevice", needs=("several_devices",))
def current_device_belongs_to_the_thread(device: Device) -> None:
    """Each thread has a current device of its own, and begins with device 0.

    A value for the whole process lets threads, such as autograd's, change each other's device: tensors of one thread
    appear on the device of another.
    """
    assert device.other.index == 1
    changed, looked = threading.Event(), threading.Event()
    seen: list[object] = []

    def look() -> None:
        seen.append(torch.accelerator.current_device_index())
        torch.accelerator.set_device_index(0)
        changed.set()
        looked.wait(20)
        seen.append(torch.ones(1, device=device.name).device)

    with torch.accelerator.device_index(1):
        thread = threading.Thread(target=look)
        thread.start()
        assert changed.wait(20)
        assert torch.accelerator.current_device_index() == 1, "another thread changed this thread's device"
        assert torch.ones(1, device=device.name).device == device.other
        looked.set()
        thread.join()
    assert seen == [0, device.this], f"a new thread has the current device {seen[0]}, and its tensors are on {seen[1]}"


@check(level=Level.BOOTS, hook="kernels set the device of their tensors", needs=("several_devices",))
def operators_leave_the_current_device_alone(device: Device) -> None:
    """Work on tensors of another device runs there, and the current device stays.

    A boxed fallback and kernels of a backend get no device guard from PyTorch: they set one themselves.
    """
    x = torch.arange(6.0, device=device.other).view(2, 3)
    results = [x + 1, x @ x.t(), x.sum(), x.t().contiguous(), torch.cat([x, x]), x.to(torch.int32), torch.rand_like(x)]
    results += [torch.softmax(x, 1), x[x > 2], torch.nn.functional.linear(x, x), x.sort().values, x.clone(), x.double()]
    results += [
        torch.empty(0, device=device.other),
        torch.empty_like(x),
        x.new_zeros(2),
        torch.zeros(2, device=device.other),
        x.nonzero(),
        x[torch.tensor([0], device=device.other)],
    ]
    for number, result in enumerate(results):
        assert result.device == device.other, f"result {number} is on {result.device}"
    assert torch.accelerator.current_device_index() == 0, "an operator changed the current device"
    device.cpu_equal(results[1], torch.tensor([[5.0, 14.0], [14.0, 50.0]]))


@check(level=Level.COMPLETE, hook="c10::DeviceAllocator")
def memory_functions_accept_devices(device: Device) -> None:
    """The memory functions of `torch.accelerator` accept no argument, an index, a name and a `torch.device`.

    They need an allocator that derives from `c10::DeviceAllocator`; `empty_host_cache` needs a host allocator.
    """
    x = torch.ones(1 << 16, device=device.this)
    numbers = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    for where in (None, 0, f"{device.name}:0", device.this):
        arguments = () if where is None else (where,)
        for name in numbers:
            assert getattr(torch.accelerator, name)(*arguments) >= x.untyped_storage().nbytes(), name
        assert torch.accelerator.memory_stats(*arguments)["allocated_bytes.all.current"] >= x.untyped_storage().nbytes()
        free, total = torch.accelerator.get_memory_info(*arguments)
        assert 0 <= free <= total and total > 0
        torch.accelerator.reset_peak_memory_stats(*arguments)
        torch.accelerator.reset_accumulated_memory_stats(*arguments)
    torch.accelerator.empty_cache()
    device.cpu_equal(x[:2], torch.ones(2))


@check(level=Level.COMPLETE, hook="c10::DeviceAllocator", needs=("several_devices",))
def memory_of_each_device_is_counted_apart(device: Device) -> None:
    """Tensors of one device do not appear in the numbers of another one.

    The allocator keeps statistics for each device; the current device must not matter.
    """
    second = device.other
    before = [torch.accelerator.memory_allocated(index) for index in range(2)]
    x = torch.ones(1 << 20, dtype=torch.uint8, device=second)
    after = [torch.accelerator.memory_allocated(index) for index in range(2)]
    assert after[0] == before[0], "a tensor of device 1 is counted for device 0"
    assert after[1] - before[1] >= x.untyped_storage().nbytes()
    del x
    assert torch.accelerator.memory_allocated(1) == before[1]


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::setDevice")
def other_devices_are_refused(device: Device) -> None:
    """The functions of `torch.accelerator` refuse a device that is not an accelerator, and an index out of range.

    PyTorch checks the type itself; the index goes to the guard.
    """
    expect_error(lambda: torch.accelerator.set_device_index("cpu"), (ValueError, RuntimeError))
    expect_error(lambda: torch.accelerator.current_stream("cpu"), (ValueError, RuntimeError))
    expect_error(lambda: torch.accelerator.set_device_index(device.count), (ValueError, RuntimeError, IndexError))
    assert torch.accelerator.current_device_index() == 0
    device.cpu_equal(torch.ones(2, device=device.name), [1.0, 1.0])
