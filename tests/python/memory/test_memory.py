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
