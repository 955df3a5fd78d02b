"""Profiler: what `torch.profiler` shows of the device.

Without a profiler of its own, a backend's traces show the host only; PyTorch lists the activity of the device as
supported all the same. With one (`libkineto::IActivityProfiler`), traces have an activity for each kernel and copy,
on the time axis of the host, and tied to the operator that launched it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from backend_conformance import Device, Level, check, missing

DeviceType: Any = torch.autograd.DeviceType


def activity(device: Device) -> Any:
    """The device's activity."""
    for each in torch.profiler.supported_activities():
        if each in (getattr(ProfilerActivity, name, None) for name in (device.name.upper(), device.key)):
            return each
    missing(f"the activities of {device.name} are not among torch.profiler.supported_activities()")


def program(device: Device, size: int = 200) -> None:
    x = torch.ones(size, size, device=device.this)
    for _ in range(5):
        y = x @ x
        y.add_(1)
    y.cpu()
    torch.accelerator.synchronize()


def recorded(device: Device, **options: Any) -> Any:
    program(device)  # what the first calls load or compile is not of interest
    with profile(activities=[ProfilerActivity.CPU, activity(device)], **options) as result:
        with record_function("the program"):
            program(device)
    return result


def device_events(result: Any) -> list[Any]:
    found = [each for each in result.events() if each.device_type != DeviceType.CPU]
    if not found:
        missing("the trace has no activity of the device: libkineto::IActivityProfiler")
    return found


@check(level=Level.TRAINS, hook="synchronize of the device module")
def operators_are_recorded_on_the_host(device: Device) -> None:
    """A profile of the CPU's activities has each operator on the device, and ends without an error.

    The profiler calls the module's `synchronize` at its end, if there is one.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as result:
        with record_function("the program"):
            program(device)
    counts = {each.key: each.count for each in result.key_averages()}
    # Where only the form with `out` has a kernel, PyTorch's own one calls it, and it has the same name in profiles.
    assert counts.get("aten::mm") in (5, 10) and counts.get("aten::add_") == 5, f"the counts are {counts}"
    assert counts.get("the program") == 1
    assert "aten::mm" in result.key_averages(group_by_input_shape=True).table(row_limit=30)


@check(level=Level.COMPLETE, hook="libkineto::IActivityProfiler", needs=("profiler",))
def kernels_are_recorded(device: Device) -> None:
    """A profile has at least an activity of the device for each kernel that ran, with a name and a duration.

    The backend's session returns them from its trace buffer.
    """
    events = device_events(recorded(device))
    assert all(each.name for each in events), "an activity has no name"
    assert all(each.time_range.elapsed_us() >= 0 for each in events), "an activity ends before it begins"
    assert sum(each.time_range.elapsed_us() for each in events) > 0, "all activities take no time"
    kernels = [each for each in events if "mem" not in each.name.lower()]
    assert len(kernels) >= 10, f"there are {len(kernels)} activities for ten kernels"


@check(level=Level.COMPLETE, hook="the clock of libkineto::IActivityProfilerSession", needs=("profiler",))
def device_times_are_on_the_time_axis_of_the_host(device: Device) -> None:
    """The activities of the device lie within the part of the program that launched them and waited for them.

    The backend converts its clock to Kineto's. Activities with another clock are dropped, or do not line up.
    """
    result = recorded(device)
    events = device_events(result)
    (whole,) = [each for each in result.events() if each.name == "the program" and each.device_type == DeviceType.CPU]
    slack = 1000.0  # us
    kernels = [each for each in events if each.name != "the program"]
    outside = [
        each.name
        for each in kernels
        if each.time_range.start < whole.time_range.start - slack or each.time_range.end > whole.time_range.end + slack
    ]
    assert not outside, f"{len(outside)} of {len(kernels)} activities are outside the program, such as {outside[0]}"


@check(level=Level.COMPLETE, hook="pushCorrelationId, popCorrelationId", needs=("profiler",))
def operators_have_device_times(device: Device) -> None:
    """`key_averages` has the device's time for an operator, and more for an operator with more work.

    PyTorch derives it from correlation numbers: the session notes the operator that is current at each launch.
    """
    program(device, 700)
    with profile(activities=[ProfilerActivity.CPU, activity(device)]) as result:
        program(device, 700)
    device_events(result)
    times = {each.key: each.device_time_total for each in result.key_averages()}
    assert times.get("aten::mm", 0) > 0, "aten::mm has no time on the device"
    assert times["aten::mm"] > times.get("aten::add_", 0), "a product of matrices takes no longer than an addition"


@check(level=Level.COMPLETE, hook="getDeviceInfo, getResourceInfos", needs=("profiler",))
def traces_are_exported(device: Device) -> None:
    """`export_chrome_trace` writes valid JSON with the activities of the device and of the host.

    Trace viewers read it.
    """
    result = recorded(device)
    expected = {each.name for each in device_events(result) if each.name != "the program"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        result.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    names = {each["name"] for each in events if each.get("ph") == "X"}
    assert "aten::mm" in names, "the trace has no operators"
    assert expected <= names, f"the trace lacks the device's activities {sorted(expected - names)[:3]}"


@check(level=Level.COMPLETE, hook="c10::reportMemoryUsageToProfiler", needs=("profiler",))
def allocations_are_recorded(device: Device) -> None:
    """With `profile_memory=True` operators have the memory that they allocated on the device.

    The allocator reports each allocation and release.
    """
    torch.empty(1 << 20, device=device.this)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as result:
        x = torch.empty(1 << 20, device=device.this)
        y = x.clone()
        del x, y
    largest = max(each.self_device_memory_usage for each in result.key_averages())
    if not largest:
        missing("no operator has memory of the device: c10::reportMemoryUsageToProfiler")
    assert largest >= 4 << 20, f"the largest allocation is {largest} bytes; the program allocated {4 << 20} at once"


@check(level=Level.COMPLETE, hook="libkineto::IActivityProfilerSession", needs=("profiler",))
def profiles_can_be_repeated(device: Device) -> None:
    """Several profiles, and a schedule of warm-up and active steps, have the activities of their own steps only.

    Each profile starts a new session.
    """
    counts = []
    for _ in range(2):
        counts.append(len(device_events(recorded(device))))
    assert counts[0] == counts[1], f"two profiles of the same program have {counts[0]} and {counts[1]} activities"
    steps = []
    with profile(
        activities=[ProfilerActivity.CPU, activity(device)],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda each: steps.append(len(device_events(each))),
    ) as scheduled:
        for _ in range(4):
            program(device)
            scheduled.step()
    assert len(steps) == 1 and steps[0] >= 1.5 * counts[0], f"two steps have {steps} activities, one step {counts[0]}"
