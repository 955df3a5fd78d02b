"""Devices: which exist, which is current, and where tensors go.

Each thread has a current device. A factory with a device type alone uses it; a factory with an index uses that device
and leaves the current one as it is. PyTorch asks the guard (`c10::impl::DeviceGuardImplInterface`) for all this; the
device's module has the same functions for Python.
"""

from __future__ import annotations

import contextlib
from functools import partial

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import in_threads, refused
from backend_conformance.verdicts import first_line

_FACTORIES = {
    "empty": lambda where: torch.empty(3, device=where),
    "empty without elements": lambda where: torch.empty(0, device=where),
    "empty_strided": lambda where: torch.empty_strided((2, 2), (1, 2), device=where),
    "empty_like": lambda where: torch.empty_like(torch.ones(3), device=where),
    "zeros": lambda where: torch.zeros(3, device=where),
    "full": lambda where: torch.full((3,), 7, device=where),
    "arange": lambda where: torch.arange(3, device=where),
    "tensor": lambda where: torch.tensor([1.0], device=where),
    "rand": lambda where: torch.rand(3, device=where),
    "randperm": lambda where: torch.randperm(3, device=where),
    "eye": lambda where: torch.eye(3, device=where),
    "linspace": lambda where: torch.linspace(0, 1, 3, device=where),
    "new_empty": lambda where: torch.ones(2, device=where).new_empty(3),
    "zeros_like": lambda where: torch.zeros_like(torch.ones(3, device=where)),
    "clone": lambda where: torch.ones(3, device=where).clone(),
    "to": lambda where: torch.ones(3).to(where),
}

_USUAL = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::getDevice")
def first_device_is_current_at_first(device: Device) -> None:
    """The current device of a new thread is device 0, and a device type without an index means the current device.

    Tensors have an index in all cases: PyTorch compares devices with it.
    """
    seen: list[object] = []

    def look() -> None:
        seen.append(torch.accelerator.current_device_index())
        seen.append(torch.ones(2, device=device.name).device)

    in_threads(look)
    assert seen == [0, device.this], f"a new thread has the current device {seen[0]}, and its tensors are on {seen[1]}"


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::setDevice: refuse an index without a device")
def index_without_a_device_is_refused(device: Device) -> None:
    """A factory with the index of a device that does not exist raises, and the current device stays.

    Without the check the tensor silently goes to another device, or the process dies.
    """
    absent = torch.device(device.name, device.count)
    before = torch.accelerator.current_device_index()
    for name in ("empty", "tensor", "to"):
        error = refused(partial(_FACTORIES[name], absent), f"{name} on {absent}", RuntimeError, ValueError, IndexError)
        assert not isinstance(error, torch.OutOfMemoryError), f"{name} on {absent} raises OutOfMemoryError"
    assert torch.accelerator.current_device_index() == before
    device.cpu_equal(torch.ones(2, device=device.name), [1.0, 1.0])


@check(
    level=Level.BOOTS,
    hook="allocate on the tensor's device, also for zero bytes",
    needs=("several_devices",),
    cases=tuple(_FACTORIES),
)
def factories_use_the_index_that_they_are_given(device: Device, case: str) -> None:
    """A factory with an index makes its tensor there, and leaves the current device as it is.

    An allocator uses the current device, so a factory has to switch to the tensor's first. A tensor's device is that
    of its data pointer: the null pointer of a tensor without elements needs the right device, too.
    """
    other = device.other
    made = _FACTORIES[case](other)
    assert made.device == other, f"the tensor is on {made.device}, not on {other}"
    assert made.untyped_storage().device == other, "the storage has another device than the tensor"
    assert torch.accelerator.current_device_index() == 0, "the factory changes the current device"
    assert _FACTORIES[case](device.this).device == device.this


@check(
    level=Level.TRAINS, hook="DeviceGuardImplInterface: the current device is thread_local", needs=("several_devices",)
)
def threads_on_several_devices_do_not_mix(device: Device) -> None:
    """Four threads that switch between devices find each result on their own device, with the right values."""
    count = min(device.count, 4)

    def work(number: int) -> None:
        for turn in range(20):
            index = (number + turn) % count
            torch.accelerator.set_device_index(index)
            value = torch.full((16, 16), float(number + 1), device=device.name)
            product = value @ torch.eye(16, device=device.name)
            assert product.device.index == index and product.cpu().eq(number + 1).all(), (
                f"thread {number}: {product.device} instead of {index}, {product[0, 0].item()}"
            )

    in_threads(*(partial(work, number) for number in range(4)))


@check(level=Level.TRAINS, hook="current_device and set_device of the module")
def module_and_accelerator_agree_on_the_current_device(device: Device) -> None:
    """`current_device()` and `set_device()` of the module are about the same device as those of `torch.accelerator`.

    Fake tensors, device meshes and PyTorch's own tests call the module's; `torch.accelerator` calls the guard.
    """
    module = device.module
    last = device.count - 1
    try:
        module.set_device(last)
        assert torch.accelerator.current_device_index() == last
        assert module.current_device() == last
        torch.accelerator.set_device_index(0)
        assert module.current_device() == 0
        assert type(module.current_device()) is int
    finally:
        torch.accelerator.set_device_index(0)


@check(level=Level.TRAINS, hook="device of the module: a context manager")
def module_has_a_context_for_devices(device: Device) -> None:
    """`torch.<name>.device(...)` takes an index or a `torch.device`, switches to it, and restores the device before.

    `torch.load` and pickle enter it with a `torch.device`, checkpointing with an index.
    `torch.accelerator.device_index` takes an index only, so an alias of that is not enough.
    """
    last = device.count - 1
    for where in (last, device.at(last)):
        with device.module.device(where):
            assert torch.accelerator.current_device_index() == last, f"device({where!r}) does not switch"
        assert torch.accelerator.current_device_index() == 0, f"device({where!r}) does not restore"
    with contextlib.suppress(KeyError), device.module.device(last):
        raise KeyError
    assert torch.accelerator.current_device_index() == 0, "the device is not restored after an exception"


@check(level=Level.COMPLETE, hook="synchronize, get_device_properties and get_device_name of the module")
def module_describes_the_device(device: Device) -> None:
    """The module has `synchronize`, `get_device_properties` and `get_device_name`.

    Profilers call `synchronize`; `get_device_properties` is asked by Inductor and by `torch._utils`. Programs print the
    name.
    """
    device.module.synchronize()
    name = device.module.get_device_name(0)
    assert isinstance(name, str) and name
    properties = device.module.get_device_properties(0)
    assert properties is not None
    assert getattr(properties, "name", name) == name, "the properties have another name than get_device_name"


@check(level=Level.COMPLETE, hook="DeviceGuardImplInterface::getDeviceCapability")
def listed_dtypes_work(device: Device) -> None:
    """Tensors of all dtypes that a device lists can be made, and go to the host and back; the usual ones can be added.

    The structure of the answer of `torch.accelerator.get_device_capability()` has all bits set at first: a backend has
    to clear those of dtypes that it does not have.
    """
    failed = []
    for where in map(device.at, range(device.count)):
        listed = torch.accelerator.get_device_capability(where)["supported_dtypes"]
        assert torch.float32 in listed and torch.int64 in listed
        for dtype in listed:
            try:
                host = torch.zeros(4, dtype=dtype).clone()
            except RuntimeError:
                continue  # PyTorch has no copies of such tensors on the host either
            try:
                there = torch.empty(4, dtype=dtype, device=where).copy_(host)
                there.cpu()
                if dtype in _USUAL:
                    there + there
            except (RuntimeError, TypeError) as error:
                failed.append(f"{dtype} ({first_line(error)[:100]})")
    assert not failed, f"listed, but not supported: {', '.join(sorted(failed))}"


@check(level=Level.TRAINS, hook="_is_in_bad_fork, is_initialized, _lazy_init of the module")
def module_knows_that_the_device_is_in_use(device: Device) -> None:
    """After the first tensor `is_initialized()` is true, and `_is_in_bad_fork()` false.

    Fake tensors and device meshes ask `is_initialized` without looking whether it exists; `torch.manual_seed` asks
    `_is_in_bad_fork`.
    """
    torch.ones(1, device=device.this)
    assert device.module.is_initialized() is True
    assert not device.module._is_in_bad_fork()
