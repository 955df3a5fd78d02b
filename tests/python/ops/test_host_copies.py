"""Copies between host and device, and between devices: which of them wait, and how long memory is kept."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
import waits
from devices import DEVICE

pytestmark = pytest.mark.any_device

ELEMENTS = 1 << 16  # 256 KiB of floats: more than a command carries with it


def occupy(stream: torch.Stream) -> None:
    """Work of some tenths of a second, for one core."""
    with stream:
        x = torch.rand(1200, 1200, device=f"{DEVICE}:{stream.device_index}")
        for _ in range(4):
            x = (x @ x) / 600


# How a piece of pinned memory may be held: base tensor to what is copied.
PIECES = {
    "whole": lambda base: base,
    "slice": lambda base: base[100 : ELEMENTS // 2],
    "strided": lambda base: base[::2],
    "one element": lambda base: base[77],
    "by way of NumPy": lambda base: torch.from_numpy(base.numpy()[1000:]),
    "by way of DLPack": lambda base: torch.from_dlpack(base[1000:]),
}


def new_memory_beside_a_queued_copy(
    piece: str, dtype: torch.dtype, copy: Callable
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queues `copy(host, device)`, frees the pinned memory and takes new memory, which must not be the same before the
    copy is done. Returns the new memory, filled with twos, and the device's tensor, of threes before the copy."""
    stream = torch.Stream()
    host = PIECES[piece](torch.ones(ELEMENTS, pin_memory=True))
    base = host.untyped_storage().data_ptr() & -4096  # of the block: pages
    device = torch.full(host.shape, 3, dtype=dtype, device=DEVICE)
    torch.accelerator.synchronize()
    occupy(stream)
    with stream, waits.no_waits():
        copy(host, device)
    del host
    other = torch.empty(ELEMENTS, pin_memory=True)
    assert not stream.query()
    assert other.data_ptr() != base
    other.fill_(2)
    assert not stream.query()
    stream.synchronize()
    assert torch.empty(ELEMENTS, pin_memory=True).data_ptr() == base  # now it is
    return other, device


@pytest.mark.needs_engines("the allocator asks about the copy, which would run it")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("piece", PIECES)
def test_pinned_memory_that_is_read_by_a_queued_copy_is_not_reused(piece, dtype):
    def read(host, device):
        device.copy_(host, non_blocking=True)

    _, target = new_memory_beside_a_queued_copy(piece, dtype, read)
    assert target.eq(1).all()


@pytest.mark.needs_engines("the allocator asks about the copy, which would run it")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("piece", PIECES)
def test_pinned_memory_that_is_written_by_a_queued_copy_is_not_reused(piece, dtype):
    def write(host, device):
        host.copy_(device, non_blocking=True)

    other, _ = new_memory_beside_a_queued_copy(piece, dtype, write)
    assert other.eq(2).all()


def test_a_pinned_block_that_two_streams_copy_is_kept_for_both():
    first, second = torch.Stream(), torch.Stream()
    host = torch.ones(ELEMENTS, pin_memory=True)
    address = host.data_ptr()
    targets = [torch.zeros(ELEMENTS, device=DEVICE) for _ in range(2)]
    torch.accelerator.synchronize()
    occupy(second)
    for stream, target in zip((first, second), targets, strict=True):
        with stream:
            target.copy_(host, non_blocking=True)
    del host
    first.synchronize()
    other = torch.full((ELEMENTS,), 2.0, pin_memory=True)
    assert not second.query()
    assert other.data_ptr() != address
    second.synchronize()
    assert targets[0].eq(1).all() and targets[1].eq(1).all()


# Shapes and dtypes of a host tensor, some of them not as the device's.
HOST_TENSORS = {
    "large": lambda: torch.ones(ELEMENTS),
    "small": lambda: torch.ones(4),
    "without dimensions": lambda: torch.ones(()),
    "strided": lambda: torch.ones(ELEMENTS, 2)[:, 0],
    "transposed": lambda: torch.ones(256, 512).t(),
    "expanded": lambda: torch.ones(256, 1).expand(256, 512),
    "another dtype": lambda: torch.ones(ELEMENTS, dtype=torch.int16),
    "inside": lambda: torch.ones(3 * ELEMENTS)[ELEMENTS:-ELEMENTS],
}
OWN_ELEMENTS = [name for name in HOST_TENSORS if name != "expanded"]  # PyTorch pins no others


@pytest.mark.parametrize("non_blocking", [True, False])
@pytest.mark.parametrize("name", HOST_TENSORS)
def test_a_pageable_source_may_be_changed_when_the_copy_returns(name, non_blocking):
    stream = torch.Stream()
    host = HOST_TENSORS[name]()
    occupy(stream)
    with stream:
        target = torch.zeros(host.shape, device=DEVICE)
        target.copy_(host, non_blocking=non_blocking)
        made = host.to(DEVICE, non_blocking=non_blocking)
    host.untyped_storage().fill_(0)
    stream.synchronize()
    assert target.eq(1).all() and made.eq(1).all()


@pytest.mark.parametrize("name", HOST_TENSORS)
def test_a_copy_from_pageable_memory_has_arrived_for_every_stream_when_it_returns(name):
    stream = torch.Stream()
    host = HOST_TENSORS[name]()
    target = torch.zeros(host.shape, device=DEVICE)
    torch.accelerator.synchronize()
    occupy(stream)
    with stream:
        target.copy_(host)
        made = host.to(DEVICE)
        listed = torch.tensor([1.0, 1.0], device=DEVICE)
    with torch.Stream():  # waits for no other stream
        assert target.eq(1).all() and made.eq(1).all() and listed.eq(1).all()


@pytest.mark.parametrize("non_blocking", [True, False])
@pytest.mark.parametrize("name", OWN_ELEMENTS)
def test_a_copy_to_pageable_memory_has_arrived_when_it_returns(name, non_blocking):
    stream = torch.Stream()
    host = HOST_TENSORS[name]().mul_(9)
    occupy(stream)
    with stream:
        source = torch.full(host.shape, 5.0, device=DEVICE)
        host.copy_(source, non_blocking=non_blocking)
        assert host.eq(5).all()
        assert source.add_(1).to("cpu").eq(6).all()


def test_to_cpu_without_blocking_gives_pinned_memory_and_returns_at_once_as_with_cuda():
    stream = torch.Stream()
    torch.accelerator.synchronize()
    occupy(stream)
    with stream, waits.no_waits():
        host = torch.full((ELEMENTS,), 5.0, device=DEVICE).to("cpu", non_blocking=True)
    assert host.is_pinned() and not stream.query()
    stream.synchronize()
    assert host.eq(5).all()


@pytest.mark.parametrize("name", OWN_ELEMENTS)
def test_a_blocking_copy_from_pinned_memory_lets_the_source_be_changed(name):
    stream = torch.Stream()
    host = HOST_TENSORS[name]().pin_memory()
    occupy(stream)
    with stream:
        target = torch.zeros(host.shape, device=DEVICE).copy_(host)
    host.zero_()
    stream.synchronize()
    assert target.eq(1).all()


@pytest.mark.no_race_detection("it changes what a copy has yet to read")
@pytest.mark.parametrize("name", OWN_ELEMENTS)
def test_copies_from_and_to_pinned_memory_return_before_they_are_done(name):
    stream = torch.Stream()
    host = HOST_TENSORS[name]().pin_memory()
    back = torch.zeros_like(host, pin_memory=True)
    assert host.is_pinned() and back.is_pinned()
    torch.accelerator.synchronize()
    occupy(stream)
    with stream, waits.no_waits():
        x = torch.zeros(host.shape, device=DEVICE)
        x.copy_(host, non_blocking=True)
        back.copy_(x + 1, non_blocking=True)
        host.add_(1)  # the copy has not read it yet: this is the caller's mistake
    assert not stream.query()
    assert not back.any()
    stream.synchronize()
    assert x.eq(2).all() and back.eq(3).all()


def test_a_copy_between_devices_waits_for_both_streams_and_both_wait_for_it():
    """Before it, each stream has work on the memory; after it, each changes or reads the memory. No thread waits."""
    first, second = torch.Stream(f"{DEVICE}:0"), torch.Stream(f"{DEVICE}:1")
    source = torch.zeros(ELEMENTS, device=f"{DEVICE}:0")
    target = torch.ones(ELEMENTS, device=f"{DEVICE}:1")
    for device in range(2):
        torch.accelerator.synchronize(device)
    occupy(first)
    occupy(second)
    with first, second, waits.no_waits():
        source.add_(5)
        before = target * 2
        target.copy_(source)
        after = target * 2
        source.fill_(-1)
    assert not first.query() and not second.query()
    first.synchronize()
    second.synchronize()
    assert before.eq(2).all() and after.eq(10).all() and target.eq(5).all() and source.eq(-1).all()


@pytest.mark.parametrize("busy", [0, 1])
def test_memory_freed_behind_a_copy_between_devices_is_not_reused_before_it(busy):
    """The source's by later work of its stream, the target's by later work of its own."""
    streams = [torch.Stream(f"{DEVICE}:0"), torch.Stream(f"{DEVICE}:1")]
    with streams[0], streams[1]:
        source = torch.full((ELEMENTS,), 4.0, device=f"{DEVICE}:0")
        for device in range(2):
            torch.accelerator.synchronize(device)
        occupy(streams[busy])
        result = source.to(f"{DEVICE}:1", non_blocking=True)
        address = source.data_ptr()
        del source
        reused = torch.full((ELEMENTS,), 7.0, device=f"{DEVICE}:0")
        assert reused.data_ptr() == address
        dropped = torch.empty(ELEMENTS, device=f"{DEVICE}:1").copy_(reused)
        address = dropped.data_ptr()
        del dropped
        last = torch.full((ELEMENTS,), 8.0, device=f"{DEVICE}:1")
        assert last.data_ptr() == address
    assert not streams[1].query()  # it waits for the copies
    for stream in streams:
        stream.synchronize()
    assert result.eq(4).all() and reused.eq(7).all() and last.eq(8).all()


@pytest.mark.openreg_only
def test_devices_can_access_each_other_and_not_themselves():
    access = torch.openreg.can_device_access_peer
    assert access(0, 1) and access(1, 0) and access(f"{DEVICE}:0", torch.device(f"{DEVICE}:1"))
    assert not access(0, 0) and not access(1, 1)
    with torch.accelerator.device_index(1):
        assert access(None, 0) and access(DEVICE, 0) and not access(None, 1)


def test_memory_that_others_locked_is_copied_as_pageable_memory():
    """Only what the allocator gave out is pinned; a copy of other memory does not return before it is done."""
    memory = (ctypes.c_float * ELEMENTS)()
    ctypes.CDLL(None).mlock(memory, ctypes.sizeof(memory))
    host = torch.frombuffer(memory, dtype=torch.float32).fill_(1)
    assert not host.is_pinned()
    stream = torch.Stream()
    occupy(stream)
    with stream:
        x = host.to(DEVICE, non_blocking=True)
    host.fill_(0)
    stream.synchronize()
    assert x.eq(1).all()
