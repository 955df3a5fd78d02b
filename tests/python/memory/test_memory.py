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


def test_empty_takes_a_memory_format():
    x = torch.empty(2, 3, 4, 5, device="openreg", memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def test_allocated_bytes_follow_tensors():
    before = torch.openreg.memory_allocated()
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() - before == 4 * MIB
    assert torch.openreg.memory_allocated() == torch.accelerator.memory_allocated()
    del x
    assert torch.openreg.memory_allocated() == before


def test_devices_are_counted_apart():
    before = torch.openreg.memory_allocated(0)
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="openreg:1")
    assert torch.openreg.memory_allocated(0) == before
    assert torch.openreg.memory_allocated(x.device) >= 4 * MIB
    assert torch.openreg.memory_allocated("openreg:1") == torch.openreg.memory_allocated(1)


def test_reserved_bytes_stay_after_a_free_until_the_cache_is_emptied():
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    reserved = torch.openreg.memory_reserved()
    assert reserved >= 64 * MIB
    del x
    assert torch.openreg.memory_reserved() == reserved
    torch.openreg.empty_cache()
    assert torch.openreg.memory_reserved() <= reserved - 64 * MIB


def test_peak_is_kept_and_reset():
    torch.openreg.reset_peak_memory_stats()
    base = torch.openreg.max_memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="openreg")
    del x
    assert torch.openreg.max_memory_allocated() == base + 8 * MIB
    assert torch.openreg.max_memory_reserved() >= torch.openreg.memory_reserved()
    torch.openreg.reset_peak_memory_stats()
    assert torch.openreg.max_memory_allocated() == torch.openreg.memory_allocated()


def test_memory_stats_have_pytorch_s_names_and_accumulate():
    torch.openreg.reset_accumulated_memory_stats()
    x = torch.empty(2 * MIB, dtype=torch.uint8, device="openreg")
    del x
    stats = torch.openreg.memory_stats()
    for column in ("current", "peak", "allocated", "freed"):
        assert f"allocated_bytes.all.{column}" in stats
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 2 * MIB


def test_memory_summary_shows_the_figures():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="openreg")
    summary = torch.openreg.memory_summary()
    assert "Allocated memory" in summary and "Reserved memory" in summary
    assert f"{torch.openreg.memory_allocated() / MIB:.2f} MiB" in summary
    assert len(torch.openreg.memory_summary(abbreviated=True)) < len(summary)
    assert x.numel() == 3 * MIB


def test_memory_info_gives_free_and_total():
    free, total = torch.openreg.mem_get_info()
    assert 0 < free <= total == torch.openreg.get_device_properties().total_memory
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    assert torch.accelerator.get_memory_info(0)[0] <= free - 64 * MIB
    assert x.numel() == 64 * MIB


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


def test_out_of_memory_reports_figures_and_the_process_continues():
    total = torch.openreg.mem_get_info()[1]
    before = torch.openreg.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match="openreg"):
        torch.empty(2 * total, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == before
    assert torch.ones(3, device="openreg").sum().item() == 3


def test_a_memory_limit_is_kept(run_python):
    run_python(
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


def test_round_trips_clones_and_in_place_operators():
    host = torch.randn(5, 7)
    x = host.to("openreg")
    assert torch.equal(x.cpu(), host)
    assert x.to("openreg").data_ptr() == x.data_ptr() != x.clone().data_ptr()
    pointer = x.data_ptr()
    x.add_(1).mul_(2)
    assert x.data_ptr() == pointer
    torch.testing.assert_close(x.cpu(), (host + 1) * 2)


def test_views_share_memory():
    x = torch.zeros(4, 6, device="openreg")
    view = x.view(6, 4)
    view.fill_(3)
    assert view.data_ptr() == x.data_ptr()
    assert x.sum().item() == 72
    assert x[1:, 2].numel() == 3


def test_resize_keeps_the_values_that_fit():
    x = torch.arange(12, device="openreg")
    pointer = x.data_ptr()
    x.resize_(3)
    assert x.tolist() == [0, 1, 2]
    x.resize_(3, 4)
    assert x.data_ptr() == pointer
    assert x.flatten().tolist() == list(range(12))
    x.resize_(1000)
    assert x[:12].tolist() == list(range(12))


def test_devices_do_not_share_memory():
    pointers = [torch.empty(100, device=f"openreg:{i % 2}").data_ptr() for i in range(2)]
    tensors = [torch.full((100,), i, device=f"openreg:{i % 2}") for i in range(20)]
    assert pointers[0] != pointers[1]
    assert len({t.data_ptr() for t in tensors}) == 20
    assert [t.device.index for t in tensors] == [0, 1] * 10
    assert [t[0].item() for t in tensors] == list(range(20))


def test_parameters_can_be_given_data_of_another_device():
    assert torch._has_compatible_shallow_copy_type(torch.ones(1), torch.ones(1, device="openreg"))
    host, device = torch.ones(2), torch.zeros(2, device="openreg")
    p = torch.nn.Parameter(host)
    p.data = device
    assert (p.device.type, p.data_ptr()) == ("openreg", device.data_ptr())
    p.data = host
    assert (p.device.type, p.data_ptr()) == ("cpu", host.data_ptr())


@pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor:DeprecationWarning")
def test_pinned_memory():
    host = torch.randn(10)
    assert not host.is_pinned()
    pinned = host.pin_memory()
    assert pinned.is_pinned() and pinned[2:5].is_pinned()
    assert pinned.untyped_storage().is_pinned("openreg")
    assert host.untyped_storage().pin_memory("openreg").is_pinned("openreg")
    assert torch.equal(pinned, host)
    view = torch.empty(0).set_(pinned.untyped_storage(), 2, (3,))
    assert view.is_pinned() and view.data_ptr() != pinned.data_ptr()


def test_pinned_memory_copies_without_blocking():
    pinned = torch.arange(1000.0).pin_memory()
    x = pinned.to("openreg", non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(x * 2, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, torch.arange(1000.0) * 2)


def test_pinned_memory_freed_while_it_is_copied_is_not_reused_early():
    expected = []
    copies = []
    for value in range(20):
        pinned = torch.full((100_000,), float(value)).pin_memory()
        copies.append(pinned.to("openreg", non_blocking=True))
        expected.append(100_000.0 * value)
        del pinned
    assert [c.sum().item() for c in copies] == expected


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


def test_the_process_that_uses_a_device_is_listed(run_python):
    run_python(
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
