"""The hooks: what PyTorch requires of a device in addition to the guard.

`at::PrivateUse1HooksInterface` has one object, registered by `at::RegisterPrivateUse1HooksInterface`: whether there
is a device, whether it is in use, its generators, its pinned memory, and the size of storages. It repeats the guard's
functions of the current device, and both must be about the same one. Most functions of the base class raise.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check, missing, not_applicable, vacuous

_COUNT = "PrivateUse1HooksInterface::deviceCount"
_LARGER_THAN_A_BLOCK = 1 << 22  # bytes; allocators round small sizes up


@check(level=Level.COMPLETE, hook=_COUNT)
def hooks_count_the_devices(device: Device) -> None:
    """The hooks and the module have the same number of devices.

    The base class returns 0, without an error.
    """
    _require_hooks(device)
    found = torch._C._accelerator_hooks_device_count()
    if found == 0:
        missing("the hooks count 0 devices, as the base class does")
    assert found == device.module.device_count(), f"the hooks have {found} devices, the module {device.count}"


@check(
    level=Level.COMPLETE,
    hook="PrivateUse1HooksInterface::setCurrentDevice, getCurrentDevice, exchangeDevice, maybeExchangeDevice",
)
def hooks_and_guard_have_one_current_device(device: Device) -> None:
    """The current device of the hooks is the current device of the guard."""
    _require_hooks(device)
    last = device.count - 1
    try:
        torch._C._accelerator_hooks_set_current_device(last)
        assert torch.accelerator.current_device_index() == last
        assert torch._C._accelerator_hooks_get_current_device() == last
        torch.accelerator.set_device_index(0)
        assert torch._C._accelerator_hooks_get_current_device() == 0
        assert torch._C._accelerator_hooks_exchange_device(last) == 0
        assert torch.accelerator.current_device_index() == last
    finally:
        torch.accelerator.set_device_index(0)


@check(level=Level.TRAINS, hook="PrivateUse1HooksInterface::resizePrivateUse1Bytes")
def storages_can_be_resized(device: Device) -> None:
    """`UntypedStorage.resize_` keeps the bytes that fit, keeps the storage's identity, and can free its memory.

    FSDP frees and allocates the storages of its parameters in this way. Tensors keep their storage: those that share it
    see the new memory.
    """
    x = torch.arange(4.0, device=device.this)
    view = x[1:3]
    neighbours = [torch.zeros(4).to(device.this) for _ in range(16)]
    storage = x.untyped_storage()
    storage.resize_(64)
    assert storage.nbytes() == 64 and storage.device == device.this and x.data_ptr() == storage.data_ptr()
    device.cpu_equal(x, [0.0, 1.0, 2.0, 3.0])
    x.add_(10)
    device.cpu_equal(view, [11.0, 12.0])
    storage.resize_(_LARGER_THAN_A_BLOCK)
    whole = torch.empty(0, device=device.this).set_(storage, 0, (_LARGER_THAN_A_BLOCK // 4,), (1,))
    device.cpu_equal(whole[:4], [10.0, 11.0, 12.0, 13.0])
    whole.fill_(5)
    for each in neighbours:
        device.cpu_equal(each, [0.0] * 4)
    assert torch.equal(whole.cpu(), torch.full((_LARGER_THAN_A_BLOCK // 4,), 5.0))
    x.copy_(torch.tensor([10.0, 11.0, 12.0, 13.0]))
    storage.resize_(8)
    assert storage.nbytes() == 8
    device.cpu_equal(x[:2], [10.0, 11.0])
    storage.resize_(0)
    assert storage.nbytes() == 0 and storage.device == device.this
    storage.resize_(16)
    x.fill_(3)
    device.cpu_equal(view, [3.0, 3.0])


@check(level=Level.ASYNCHRONOUS, hook="PrivateUse1HooksInterface::resizePrivateUse1Bytes", needs=("streams",))
def storages_are_resized_in_the_order_of_the_stream(device: Device) -> None:
    """A resized storage has the bytes that the operators before it write, though they have not run yet.

    The hook copies the old bytes on the current stream. If it copies at once, the bytes are those of before.
    """
    x = torch.zeros(1 << 16, device=device.this)
    device.synchronize()
    if not device.enough_work():
        vacuous("the host was never seen to run ahead of the device")
    x.fill_(7)
    x.untyped_storage().resize_(1 << 20)
    device.cpu_equal(x, torch.full((1 << 16,), 7.0))


@check(level=Level.TRAINS, hook="PrivateUse1HooksInterface::getDefaultGenerator, getNewGenerator")
def generators_can_be_made(device: Device) -> None:
    """`torch.Generator(device="<name>")` makes a generator of the device, with an index."""
    made = torch.Generator(device=device.name)
    assert made.device.type == device.name
    last = device.at(device.count - 1)
    assert torch.Generator(device=last).device == last


@check(level=Level.COMPLETE, hook="PrivateUse1HooksInterface::isPinnedPtr, isAvailable: must not raise")
def questions_about_the_host_do_not_raise(device: Device) -> None:
    """`Tensor.is_pinned()` of ordinary memory is false, also when it is the first thing that a process does.

    PyTorch asks the hooks of the accelerator for any CPU tensor.
    """
    printed = device.output("print(torch.ones(3).is_pinned(), torch.accelerator.is_available())")
    assert printed.split() == ["False", "True"]


def _require_hooks(device: Device) -> None:
    if not hasattr(torch._C, "_accelerator_hooks_device_count"):
        not_applicable("this version of torch does not expose the hooks")
