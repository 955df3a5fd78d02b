"""Memory, as Python sees it: statistics, reuse, limits, pinned memory, streams."""

from __future__ import annotations

import gc

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_is_pending():
    gc.collect()
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    torch.openreg.empty_cache()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(10,), (2, 3, 4), (10 * MIB // 8,)])
def test_empty_has_type_shape_and_dtype(dtype, shape):
    x = torch.empty(shape, dtype=dtype, device="openreg")
    assert (x.device.type, x.shape, x.dtype, x.is_contiguous()) == ("openreg", shape, dtype, True)


def test_reserved_bytes_stay_after_a_free_until_the_cache_is_emptied():
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    reserved = torch.openreg.memory_reserved()
    assert reserved >= 64 * MIB
    del x
    assert torch.openreg.memory_reserved() == reserved
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() <= reserved - 64 * MIB


def test_memory_summary_shows_the_figures():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="openreg")
    summary = torch.openreg.memory_summary()
    assert "Allocated memory" in summary and "Reserved memory" in summary
    assert f"{torch.openreg.memory_allocated() / MIB:.2f} MiB" in summary
    assert len(torch.openreg.memory_summary(abbreviated=True)) < len(summary)
    assert x.numel() == 3 * MIB


def test_freed_memory_is_reused_on_the_same_stream():
    x = torch.empty(MIB, dtype=torch.uint8, device="openreg")
    pointer = x.data_ptr()
    del x
    assert torch.empty(MIB, dtype=torch.uint8, device="openreg").data_ptr() == pointer


def test_freed_memory_that_another_stream_uses_is_not_reused_before_it_is_done():
    x = torch.ones(1024, 1024, device="openreg")
    other = torch.openreg.Stream()
    other.wait_stream(torch.openreg.current_stream())
    with other:
        total = torch.zeros((), device="openreg")
        for _ in range(50):
            total += x.sum()
    x.record_stream(other)
    del x
    y = torch.zeros(1024, 1024, device="openreg")
    other.synchronize()
    assert total.item() == 50 * 1024 * 1024
    assert y.sum().item() == 0


def test_a_memory_limit_is_kept(run_forked):
    run_forked(
        "import torch\n"
        "assert torch.openreg.mem_get_info()[1] == 256 << 20\n"
        "x = torch.empty(100 << 20, dtype=torch.uint8, device='openreg')\n"
        "del x\n"  # its cached memory has to make room for the next
        "x = torch.empty(200 << 20, dtype=torch.uint8, device='openreg')\n"
        "try: torch.empty(100 << 20, dtype=torch.uint8, device='openreg')\n"
        "except torch.OutOfMemoryError: print('out of memory')\n"
        "y = torch.empty(100 << 20, dtype=torch.uint8, device='openreg:1')\n",
        TORCH_OPENREG_MEMORY="256MiB",
    )


def test_loops_do_not_leak():
    torch.accelerator.synchronize()
    before = torch.openreg.memory_allocated()
    for size in range(1, 500):
        x = torch.randn(size, device="openreg", requires_grad=True)
        (x * 2).sum().backward()
        _ = x.cpu()
    del x, _
    gc.collect()
    torch.accelerator.synchronize()
    assert torch.openreg.memory_allocated() == before


def test_the_process_that_uses_a_device_is_listed(run_forked):
    run_forked(
        "import os, torch\n"
        "unused = torch.openreg.list_gpu_processes(1)\n"
        "assert unused == 'openreg:1\\nno processes are running', unused\n"
        "kept = torch.empty(3 << 20, dtype=torch.uint8, device='openreg')\n"
        "lines = torch.openreg.list_gpu_processes().splitlines()\n"
        "assert lines[0] == 'openreg:0' and len(lines) == 2, lines\n"
        "assert lines[1].split()[:2] == ['process', str(os.getpid())] and float(lines[1].split()[3]) >= 3, lines\n"
    )


def test_there_is_one_allocator():
    assert torch.openreg.get_allocator_backend() == "native"
    with pytest.raises(RuntimeError, match="the device's allocator cannot be replaced; use a MemPool"):
        torch.openreg.memory.change_current_allocator(object())


def test_statistics_of_host_memory_are_in_the_module_of_memory_too():
    assert torch.openreg.memory.host_memory_stats() == torch.openreg.host_memory_stats()
