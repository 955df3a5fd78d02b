"""Memory without a tensor: caching_allocator_alloc and caching_allocator_delete."""

from __future__ import annotations

import gc

import pytest
import torch

MIB = 1 << 20

allocate = torch.openreg.caching_allocator_alloc
delete = torch.openreg.caching_allocator_delete


@pytest.fixture(autouse=True)
def _nothing_is_lost():
    """Each test gives back all that it took."""
    gc.collect()
    torch.empty(1, device="openreg")
    before = [torch.openreg.memory_allocated(device) for device in range(2)]
    yield
    assert [torch.openreg.memory_allocated(device) for device in range(2)] == before


def test_memory_is_counted_and_reused():
    before = torch.openreg.memory_allocated()
    address = allocate(3 * MIB + 1)
    assert torch.openreg.memory_allocated() == before + 3 * MIB + 512
    delete(address)
    assert torch.openreg.memory_allocated() == before
    x = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="openreg")
    assert x.data_ptr() == address


@pytest.mark.parametrize("device", [1, "openreg:1", torch.device("openreg", 1)])
def test_memory_is_of_the_device_asked_for(device):
    before = [torch.openreg.memory_allocated(index) for index in range(2)]
    address = allocate(MIB, device)
    assert [torch.openreg.memory_allocated(index) for index in range(2)] == [before[0], before[1] + MIB]
    assert torch.openreg.current_device() == 0
    delete(address)


def test_memory_is_of_the_current_device_and_stream_unless_another_is_given():
    with torch.openreg.device(1):
        first = allocate(4 * MIB)
        stream = torch.openreg.Stream()
        of_handle = allocate(4 * MIB, stream=stream.native_handle)
        with stream:
            of_current = allocate(4 * MIB)
    segments = {
        block["address"]: (segment["device"], segment["stream"])
        for segment in torch.openreg.memory_snapshot()
        for block in segment["blocks"]
    }
    assert segments[first] == (1, 0)
    assert segments[of_handle] == segments[of_current] == (1, stream.stream_id)
    for address in (first, of_handle, of_current):
        delete(address)


def test_memory_of_one_stream_is_not_given_to_another():
    streams = [torch.openreg.Stream() for _ in range(2)]
    first = allocate(MIB, 0, streams[0])
    delete(first)
    second = allocate(MIB, 0, streams[1])
    again = allocate(MIB, 0, streams[0])
    assert first == again != second
    delete(again)
    delete(second)


def test_no_bytes_are_no_memory():
    before = torch.openreg.memory_stats()
    assert allocate(0) == 0
    delete(0)
    assert torch.openreg.memory_stats() == before


def test_deleting_twice_is_an_error_and_changes_nothing():
    address = allocate(MIB)
    delete(address)
    before = torch.openreg.memory_stats()
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        delete(address)
    assert torch.openreg.memory_stats() == before
    x, y = (torch.empty(MIB, dtype=torch.uint8, device="openreg") for _ in range(2))
    assert x.data_ptr() == address != y.data_ptr()


def test_deleting_foreign_memory_is_an_error_and_changes_nothing():
    address = allocate(MIB)
    host = torch.empty(MIB)
    before = torch.openreg.memory_stats()
    for foreign in (host.data_ptr(), address + 512, address + 100 * MIB, 1, 2**64 - 1):
        with pytest.raises(RuntimeError, match="openreg"):
            delete(foreign)
    with pytest.raises(ValueError, match="address is out of range"):
        delete(-1)
    assert torch.openreg.memory_stats() == before
    delete(address)


def test_a_tensor_over_deleted_memory_is_reported_when_it_is_freed(run_python):
    result = run_python(
        "import torch\n"
        "x = torch.empty(1000, device='openreg')\n"
        "torch.openreg.caching_allocator_delete(x.data_ptr())\n"
        "del x\n"
        "assert torch.ones(3, device='openreg').sum().item() == 3\n"
    )
    assert "memory was not reused" in result.stderr and "invalid device pointer" in result.stderr
