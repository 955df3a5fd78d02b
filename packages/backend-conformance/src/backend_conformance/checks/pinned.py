"""Pinned memory: memory of the host that the device reads and writes while the host continues.

The hook `getPinnedMemoryAllocator` returns the allocator, `at::setHostAllocator` registers it for
`torch.accelerator.empty_host_cache`, and `isPinnedPtr` recognises its memory. A copy with `non_blocking=True` between
pinned memory and the device runs in the order of the current stream. The allocator must not hand out the memory again
before the copy has completed: copies call its `record_event`.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check, missing, not_applicable
from backend_conformance.evidence import in_threads, refused

_ALLOCATOR = "PrivateUse1HooksInterface::getPinnedMemoryAllocator"
_POINTER = "PrivateUse1HooksInterface::isPinnedPtr"


@check(level=Level.TRAINS, hook=_ALLOCATOR)
def pinned_copy_has_the_values(device: Device) -> None:
    """`Tensor.pin_memory()` returns a tensor of the host with the values, and goes to the device and back.

    `DataLoader(pin_memory=True)` calls it in a thread of its own.
    """
    host = torch.arange(12.0).view(3, 4).t()
    pinned = host.pin_memory()
    assert pinned.device.type == "cpu" and pinned.is_pinned() and not host.is_pinned()
    torch.testing.assert_close(pinned, host)
    device.cpu_equal(pinned.to(device.this), host)
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr(), "pinned memory is copied to be pinned"
    found: list[torch.Tensor] = []
    in_threads(lambda: found.append(torch.arange(5.0).pin_memory()))
    assert found[0].is_pinned() and found[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@check(level=Level.TRAINS, hook=_POINTER)
def views_of_pinned_memory_are_pinned(device: Device) -> None:
    """A slice of a pinned tensor is pinned, also if it was made by another library.

    For a view PyTorch passes the start of the storage. The storage of a tensor that came by DLPack or from NumPy starts
    where the slice does, in the middle of a block: if only the start of a block is recognised, copies of such a tensor
    count as copies of pageable memory, and wait.
    """
    pinned = torch.zeros(1000).pin_memory()
    for view in (pinned[1:], pinned[999:], pinned.view(10, 100)[7], pinned[::3], pinned.detach()):
        assert view.is_pinned(), f"a view at the offset {view.storage_offset()} is not pinned"
    assert pinned.untyped_storage().is_pinned()
    for first in (1, 999):
        imported = torch.from_dlpack(pinned[first:])
        assert imported.storage_offset() == 0 and imported.data_ptr() == pinned[first:].data_ptr()
        assert imported.is_pinned(), f"a storage that starts at element {first} of pinned memory is not pinned"


@check(level=Level.TRAINS, hook=_POINTER)
def other_memory_is_not_pinned(device: Device) -> None:
    """Ordinary memory of the host and memory of the device are not pinned; a tensor of the device cannot be."""
    pinned = torch.zeros(1 << 16, dtype=torch.uint8).pin_memory()
    assert pinned.is_pinned()
    for size in (1, 1 << 16, 1 << 24):
        assert not torch.zeros(size, dtype=torch.uint8).is_pinned(), f"{size} ordinary bytes are pinned"
    there = torch.ones(3, device=device.this)
    assert not there.is_pinned()
    refused(there.pin_memory, "pin_memory() of a tensor of the device")


@check(level=Level.TRAINS, hook=_ALLOCATOR)
def factories_can_pin(device: Device) -> None:
    """`pin_memory=True` of factories, and `pin_memory()` of storages, give pinned memory."""
    for made in (
        torch.empty(3, pin_memory=True),
        torch.zeros(3, 4, pin_memory=True),
        torch.full((3,), 2.0, pin_memory=True),
        torch.rand(3, pin_memory=True),
        torch.tensor([1, 2], pin_memory=True),
        torch.empty_strided((2, 2), (1, 2), pin_memory=True),
    ):
        assert made.is_pinned()
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage().pin_memory()
    assert storage.is_pinned() and storage.tolist() == [0, 1, 2, 3]


@check(level=Level.TRAINS, hook="aten::_copy_from with non_blocking from pageable memory")
def pageable_memory_can_be_overwritten_after_the_call(device: Device) -> None:
    """A copy with `non_blocking=True` from ordinary memory has read it when the call returns.

    Such memory can be overwritten, or freed, at once; CUDA stages it. A copy that reads it later takes what is there
    then.
    """
    ahead = _ahead(device)
    for size in (16, 1 << 16, 1 << 22):
        for turn in range(4):
            host = torch.full((size,), float(turn))
            there = host.to(device.this, non_blocking=True)
            host.fill_(-1.0)
            del host
            values = there.cpu()
            assert values.eq(turn).all(), f"turn {turn} of {size} elements: {values.unique().tolist()[:4]}, {ahead=}"


@check(level=Level.TRAINS, hook="aten::_copy_from with non_blocking to the host")
def non_blocking_copy_to_the_host_arrives(device: Device) -> None:
    """`to("cpu", non_blocking=True)` has the values after the device was synchronized, in pinned memory.

    PyTorch itself asks for pinned memory then, so that a device without it cannot make this copy.
    """
    there = torch.arange(1000.0, device=device.this)
    host = (there * 2).to("cpu", non_blocking=True)
    torch.accelerator.synchronize()
    torch.testing.assert_close(host, torch.arange(1000.0) * 2)
    assert host.is_pinned() or device.key != "PrivateUse1", "the copy is not in pinned memory"
    target = torch.zeros(1000).pin_memory()
    target.copy_(there + 1, non_blocking=True)
    torch.accelerator.synchronize()
    torch.testing.assert_close(target, torch.arange(1000.0) + 1)


@check(level=Level.COMPLETE, hook="at::setHostAllocator; empty_cache", needs=("pinned_memory",), timeout=90.0)
def cache_of_the_host_can_be_emptied(device: Device) -> None:
    """`torch.accelerator.empty_host_cache()` returns pinned memory that is not in use, and keeps what is.

    It calls the allocator that `at::setHostAllocator` has registered. Without one PyTorch dereferences a null
    pointer, so this runs in a process of its own.
    """
    if not hasattr(torch.accelerator, "empty_host_cache"):
        not_applicable("this version of torch does not have it")
    program = (
        "kept = torch.arange(4.0).pin_memory()\n"
        "torch.empty(1 << 20).pin_memory()\n"
        "torch.accelerator.empty_host_cache()\n"
        "print(kept.tolist(), kept.is_pinned(), kept.to(device.this).cpu().tolist())"
    )
    ended = device.run("torch.ones(4).pin_memory()\ntorch.accelerator.empty_host_cache()")
    if ended.returncode < 0:
        missing(f"the process dies by signal {-ended.returncode}: at::setHostAllocator was not called for the device")
    assert device.output(program).strip() == "[0.0, 1.0, 2.0, 3.0] True [0.0, 1.0, 2.0, 3.0]"


def _ahead(device: Device) -> bool:
    """Gives the device work if it can be behind the host."""
    try:
        return device.enough_work()
    except (NotImplementedError, RuntimeError):
        return False
