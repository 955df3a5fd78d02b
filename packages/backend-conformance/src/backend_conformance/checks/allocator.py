"""Device memory: the allocator and its statistics.

`c10::SetAllocator` registers a `c10::Allocator` for the device type. It allocates on the current device, for its
current stream. A `c10::DeviceAllocator` adds what `torch.accelerator`'s memory functions need: a cache that can be
emptied, statistics, and the memory that is left.
"""

from __future__ import annotations

import gc

import torch

from backend_conformance import Device, Level, check, missing, wrong

_MIB = 1 << 20


@check(level=Level.BOOTS, hook="c10::SetAllocator")
def memory_of_any_size_works(device: Device) -> None:
    """Tensors of 0 bytes, of 1 byte, around powers of two and of 64 MiB hold what is written to their ends."""
    for size in (0, 1, 7, 511, 512, 513, 4095, 4097, _MIB - 1, _MIB + 1, 64 * _MIB):
        made = torch.empty(size, dtype=torch.uint8, device=device.this)
        assert made.numel() == size and made.untyped_storage().nbytes() >= size
        made.fill_(3)
        if size:
            made[-1] = 5
            device.cpu_equal(made[[0, -1]], [3 if size > 1 else 5, 5])


@check(level=Level.BOOTS, hook="Allocator::allocate")
def tensors_do_not_share_memory(device: Device) -> None:
    """Tensors that are alive keep their values while others are made and freed.

    An allocator that hands out memory twice, or rounds sizes down, shows here.
    """
    kept: dict[int, torch.Tensor] = {}
    for number in range(240):
        size = (number * 7919) % 3000 + 1
        kept[number] = torch.full((size,), number, dtype=torch.int32, device=device.this)
        if number % 3 == 2:
            del kept[number - 2 if number % 2 else number - 1]
    for number, tensor in kept.items():
        values = tensor.cpu()
        assert values.eq(number).all(), f"tensor {number} of {values.numel()} elements has {values.unique().tolist()}"


@check(level=Level.BOOTS, hook="the deleter of Allocator's DataPtr")
def freed_memory_can_be_used_again(device: Device) -> None:
    """A loop that allocates 16 MiB and frees them, 200 times, does not run out of memory."""
    for _ in range(200):
        made = torch.empty(16 * _MIB, dtype=torch.uint8, device=device.this)
    made.fill_(3)
    device.cpu_equal(made[-2:], [3, 3])


@check(level=Level.COMPLETE, hook="Allocator::allocate")
def memory_is_aligned(device: Device) -> None:
    """Pointers are multiples of 16 bytes.

    Generated kernels, Inductor's among them, read 16 bytes at a time at the start of a tensor.
    """
    for size in (1, 3, 100, 513, 100_001):
        address = torch.empty(size, dtype=torch.uint8, device=device.this).data_ptr()
        assert address % 16 == 0, f"a tensor of {size} bytes begins at {address:#x}"


@check(level=Level.COMPLETE, hook="DeviceAllocator::getDeviceStats")
def allocated_memory_is_counted(device: Device) -> None:
    """`torch.accelerator.memory_allocated()` grows by the size of a tensor, not of a view, and falls after its end."""
    _require_statistics()
    gc.collect()
    before = torch.accelerator.memory_allocated()
    made = torch.empty(3 * _MIB, dtype=torch.uint8, device=device.this)
    grown = torch.accelerator.memory_allocated() - before
    assert 3 * _MIB <= grown <= 4 * _MIB, f"a tensor of 3 MiB counts as {grown} bytes"
    views = [made.view(3, _MIB), made[100:], made.detach(), made.view(torch.int32)]
    assert torch.accelerator.memory_allocated() - before == grown, "views count as memory"
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    del made
    assert torch.accelerator.memory_allocated() - before == grown, "memory that a view keeps does not count"
    del views
    assert torch.accelerator.memory_allocated() == before, "freed memory counts as allocated"


@check(level=Level.COMPLETE, hook="DeviceAllocator::resetPeakStats")
def peak_of_allocated_memory_is_kept(device: Device) -> None:
    """`max_memory_allocated()` keeps the highest amount until it is reset."""
    _require_statistics()
    gc.collect()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    assert torch.accelerator.max_memory_allocated() == before
    first = torch.empty(2 * _MIB, dtype=torch.uint8, device=device.this)
    second = torch.empty(2 * _MIB, dtype=torch.uint8, device=device.this)
    highest = torch.accelerator.memory_allocated()
    assert highest >= before + 4 * _MIB
    del first, second
    assert torch.accelerator.max_memory_allocated() == highest, "the peak falls when memory is freed"
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    assert torch.accelerator.max_memory_reserved() >= torch.accelerator.max_memory_allocated()


@check(level=Level.COMPLETE, hook="DeviceAllocator::getDeviceStats, resetAccumulatedStats")
def allocations_accumulate(device: Device) -> None:
    """`memory_stats()` counts all allocated and all freed bytes, until `reset_accumulated_memory_stats()`."""
    _require_statistics()
    gc.collect()
    before = torch.accelerator.memory_stats()
    torch.empty(_MIB, dtype=torch.uint8, device=device.this)
    after = torch.accelerator.memory_stats()
    for name in ("allocated", "freed"):
        key = f"allocated_bytes.all.{name}"
        if key not in after:
            missing(f"memory_stats() has no {key}")
        assert after[key] - before[key] >= _MIB, f"{key} grows by {after[key] - before[key]} instead of {_MIB}"
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.freed"] == 0
    assert torch.accelerator.memory_allocated() == after["allocated_bytes.all.current"], (
        "the reset changes what is in use"
    )


@check(level=Level.COMPLETE, hook="DeviceAllocator::emptyCache")
def cache_can_be_emptied(device: Device) -> None:
    """`torch.accelerator.empty_cache()` returns memory that no tensor uses, and leaves the rest alone."""
    _require_statistics()
    kept = torch.full((_MIB,), 7, dtype=torch.uint8, device=device.this)
    torch.empty(128 * _MIB, dtype=torch.uint8, device=device.this)
    device.synchronize()
    torch.accelerator.empty_cache()
    reserved, allocated = torch.accelerator.memory_reserved(), torch.accelerator.memory_allocated()
    assert reserved - allocated < 128 * _MIB, f"{reserved} bytes stay reserved, of which {allocated} are in use"
    assert kept.eq(7).all().item()


@check(level=Level.COMPLETE, hook="DeviceAllocator::getMemoryInfo")
def memory_of_the_device_is_known(device: Device) -> None:
    """`torch.accelerator.get_memory_info()` is the free and the total memory, in bytes.

    The total does not change, and holds what is in use.
    """
    free, total = torch.accelerator.get_memory_info()
    assert 0 <= free <= total and total >= _MIB, f"free {free}, total {total}"
    made = torch.empty(8 * _MIB, dtype=torch.uint8, device=device.this)
    free, after = torch.accelerator.get_memory_info()
    assert after == total
    assert free <= total - 8 * _MIB, f"8 MiB are in use, but {free} of {total} bytes are free"
    del made


def _require_statistics() -> None:
    """Statistics that stay at zero are those of an allocator without any."""
    if not torch.accelerator.memory_stats():
        missing("torch.accelerator.memory_stats() is empty")
    if torch.accelerator.memory_allocated() < 0:
        wrong(f"memory_allocated() is {torch.accelerator.memory_allocated()}")
