"""Device memory is reported to profilers: each allocation, free and failure."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

MIB = 1 << 20


def memory_events(prof):
    """(bytes, index of the device) of each report on device memory, in order."""
    device = torch._C._autograd.DeviceType.PrivateUse1
    return [
        (event.nbytes(), event.device_index())
        for event in prof.profiler.kineto_results.events()
        if event.name() == "[memory]" and event.device_type() == device
    ]


def test_each_allocation_and_free_is_reported_with_its_size():
    torch.openreg.synchronize()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        x = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="openreg")
        y = torch.empty(1000, dtype=torch.uint8, device="openreg:1")
        del x, y
    assert memory_events(prof) == [(3 * MIB + 512, 0), (1024, 1), (-3 * MIB - 512, 0), (-1024, 1)]


def test_memory_without_a_tensor_is_reported():
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        address = torch.openreg.caching_allocator_alloc(1000)
        torch.openreg.caching_allocator_delete(address)
    assert memory_events(prof) == [(1024, 0), (-1024, 0)]


def test_out_of_memory_is_reported_with_its_figures(tmp_path):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="openreg")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**45, dtype=torch.uint8, device="openreg")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (report,) = [event["args"] for event in events if event["name"] == "[OutOfMemory]"]
    assert report["Bytes"] == 2**45 and report["Device Id"] == 0
    (allocation,) = [event["args"] for event in events if event.get("args", {}).get("Bytes") == 3 * MIB]
    assert report["Total Allocated"] == allocation["Total Allocated"] == torch.openreg.memory_allocated()
    assert report["Total Reserved"] == torch.openreg.memory_reserved()
    assert x.numel() == 3 * MIB


def test_a_memory_timeline_has_the_device():
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as prof:
        x = torch.ones(3 * MIB, dtype=torch.uint8, device="openreg")
        x.add_(1)
        del x
    sizes = [size for _, _, (key, _), size in prof._memory_profile().timeline if str(key.device) == "openreg:0"]
    assert sizes.count(3 * MIB) >= 2
