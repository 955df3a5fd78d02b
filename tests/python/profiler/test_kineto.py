"""``torch.profiler`` on the device: traces are read back as a viewer reads them, and averages as a user does."""

from __future__ import annotations

import gc
import json
import os
import textwrap
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
"""Categories of slices on streams' tracks."""


@pytest.fixture
def export(tmp_path):
    """The Chrome trace of a profile, as its JSON has it."""

    def read(prof):
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        return json.loads((tmp_path / "trace.json").read_text())

    return read


@pytest.fixture
def nothing_before_a_wait():
    """What the test launches has not run when the host begins to wait, however long the host was held up before."""
    before = torch.openreg.get_schedule()
    torch.openreg.set_schedule("latest")
    yield
    torch.openreg.set_schedule(before)


def slices(trace, *categories):
    return sorted(
        (event for event in trace["traceEvents"] if event["ph"] == "X" and event.get("cat") in categories),
        key=lambda event: (event["ts"], -event["dur"]),
    )


def tracks(events):
    """Slices by track (process and thread of the trace), in order."""
    by_track = {}
    for event in events:
        by_track.setdefault((event["pid"], event["tid"]), []).append(event)
    return by_track


def settled(tensor):
    """The tensor, and nothing is queued: a profile shows what was queued before, if it runs later."""
    torch.openreg.synchronize()
    return tensor


def training_step(device="openreg"):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x = torch.randn(32, 64, device=device)
    side = torch.openreg.Stream()

    def step():
        side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(side), record_function("on the side"):
            extra = x.mul(2).cos()
        torch.openreg.current_stream().wait_stream(side)
        with record_function("model"):
            loss = model(x + extra).logsumexp(1).sum()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def test_the_device_is_among_the_default_activities():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()
    x = settled(torch.ones(8, device="openreg"))
    with profile() as prof:
        x.exp()
    assert [event.name for event in prof.events() if event.device_type.name == "OPENREG"] == ["aten::exp"]


def test_profiling_the_cpu_alone_shows_nothing_of_the_device():
    x = settled(torch.ones(8, device="openreg"))
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x.exp()
    assert {event.device_type.name for event in prof.events()} == {"CPU"}


def test_profiling_the_device_alone_shows_its_commands(export):
    x = settled(torch.ones(8, device="openreg"))
    with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
        x.exp()
    trace = export(prof)
    assert [event["name"] for event in slices(trace, "kernel")] == ["aten::exp"]
    assert not slices(trace, "cpu_op")


def test_a_profile_of_the_cpu_does_not_use_the_device(run_python):
    run_python(
        textwrap.dedent("""
        import threading, torch
        from torch.profiler import profile
        with profile() as prof:
            torch.ones(3) + 1
        prof.export_chrome_trace("trace.json")
        assert not torch.openreg.is_initialized()
        """)
    )


def test_every_arrow_has_both_its_ends(export):
    step = training_step()
    with profile() as prof:
        step()
    trace = export(prof)
    arrows = [event for event in trace["traceEvents"] if event.get("cat") == "ac2g"]
    begins = {event["id"]: event for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event for event in arrows if event["ph"] == "f"}
    assert len(begins) + len(ends) == len(arrows)  # no number twice
    assert begins.keys() == ends.keys()
    by_id = {event["args"]["correlation"]: event for event in slices(trace, *DEVICE) if "correlation" in event["args"]}
    assert begins.keys() == by_id.keys()
    for number, begin in begins.items():
        assert begin["pid"] == os.getpid()
        assert (ends[number]["pid"], ends[number]["tid"]) == (by_id[number]["pid"], by_id[number]["tid"])
        assert begin["ts"] <= ends[number]["ts"]


NUMBER = (int, float)
FIELDS = {  # of the phases of the Trace Event Format that a trace may have: required fields, and their types
    "X": {"name": str, "cat": str, "ts": NUMBER, "dur": NUMBER, "pid": (int, str), "tid": (int, str)},
    "M": {"name": str, "args": dict, "pid": (int, str), "tid": int},
    "i": {"name": str, "s": str, "ts": NUMBER, "pid": (int, str), "tid": (int, str)},
    "s": {"name": str, "cat": str, "id": int, "ts": NUMBER, "pid": int, "tid": int},
    "f": {"name": str, "cat": str, "id": int, "ts": NUMBER, "pid": int, "tid": int, "bp": str},
}


def test_traces_have_the_format_that_viewers_read(export):
    step = training_step()
    with profile(profile_memory=True, record_shapes=True, with_stack=True) as prof:
        step()
    trace = export(prof)
    assert {event["ph"] for event in trace["traceEvents"]} == FIELDS.keys()
    for event in trace["traceEvents"]:
        for field, type_ in FIELDS[event["ph"]].items():
            assert isinstance(event.get(field), type_), (field, event)
        assert event.get("dur", 0) >= 0
        assert event.get("ts", 0) >= 0
        assert event["ph"] != "M" or event["name"] in (
            *("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"),
        )


def test_slices_of_a_track_nest_or_follow_each_other(export):
    step = training_step()
    with profile() as prof:
        for _ in range(5):
            step()
    events = slices(export(prof), *DEVICE, "privateuse1_runtime")
    assert len(tracks(events)) >= 4  # two streams, two threads
    for track in tracks(events).values():
        open_until = []
        for event in track:
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"] + 0.0015:  # a trace counts in thousandths
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.0015, event
            open_until.append(end)


def test_nothing_lies_outside_of_the_recorded_time(export):
    step = training_step()
    step()
    with profile() as prof:
        step()
    step()
    torch.openreg.synchronize()
    trace = export(prof)
    (window,) = [event for event in slices(trace, "Trace") if event["name"].startswith("openreg")]
    for event in slices(trace, *DEVICE, "privateuse1_runtime"):
        assert event["ts"] >= window["ts"]
    (end,) = [event for event in trace["traceEvents"] if event["name"] == "Record Window End"]
    assert all(event["ts"] + event["dur"] <= end["ts"] for event in slices(trace, *DEVICE))


def test_kernels_carry_the_number_of_the_operator_that_launched_them(export):
    x = settled(torch.randn(64, 64, device="openreg", requires_grad=True))
    with profile() as prof:
        (x @ x).sum().backward()
    trace = export(prof)
    operators = {event["args"]["External id"]: event["name"] for event in slices(trace, "cpu_op")}
    launched = [(operators[e["args"]["External id"]], e["name"]) for e in slices(trace, "kernel")]
    assert launched.count(("aten::mm", "aten::mm")) == 3
    assert ("aten::sum", "aten::sum.dim_IntList") in launched


def test_averages_have_the_device_time_of_each_operator():
    x = settled(torch.randn(256, 256, device="openreg"))
    with profile() as prof:
        for _ in range(4):
            torch.nn.functional.linear(x, x)
    rows = {(row.key, row.device_type.name): row for row in prof.key_averages()}
    kernel = rows["aten::mm", "OPENREG"]
    assert kernel.count == 4
    assert rows["aten::mm", "CPU"].self_device_time_total == pytest.approx(kernel.self_device_time_total)
    assert rows["aten::linear", "CPU"].self_device_time_total == 0
    assert rows["aten::linear", "CPU"].device_time_total == pytest.approx(kernel.device_time_total)
    assert f"Self {torch.openreg.__name__.split('.')[-1].upper()}" in prof.key_averages().table()


def test_kernels_take_as_long_as_the_events_around_them_say():
    x = settled(torch.randn(700, 700, device="openreg"))
    begin, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    x @ x
    torch.openreg.synchronize()
    shares = []
    for _ in range(5):  # another process may take the processor between two kernels
        with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
            begin.record()
            for _ in range(10):
                x @ x
            end.record()
            torch.openreg.synchronize()
        kernels = sum(event.device_time for event in prof.events() if event.name == "aten::mm")
        shares.append(kernels / 1000 / begin.elapsed_time(end))
    assert max(shares) <= 1
    assert max(shares) >= 0.95


def test_copies_report_bytes_and_direction(export):
    x = torch.zeros(1000, 1000)
    pinned = x.pin_memory()
    on_device = x.to("openreg")
    torch.openreg.synchronize()
    with profile() as prof:
        x.to("openreg")
        pinned.to("openreg", non_blocking=True)
        torch.ones(10).to("openreg")  # travels inside the command
        on_device.cpu()
        pinned.copy_(on_device, non_blocking=True)
        on_device.clone()
        on_device.to("openreg:1")
        on_device[:10].half()  # a conversion is a kernel
        on_device.zero_()
        on_device[3, 3].item()
        torch.openreg.synchronize()
    trace = export(prof)
    assert [(event["name"], event["args"]["bytes"]) for event in slices(trace, "gpu_memcpy", "gpu_memset")] == [
        ("Memcpy HtoD (Pageable -> Device)", 4_000_000),
        ("Memcpy HtoD (Pinned -> Device)", 4_000_000),
        ("Memcpy HtoD (Pageable -> Device)", 40),
        ("Memcpy DtoH (Device -> Pageable)", 4_000_000),
        ("Memcpy DtoH (Device -> Pinned)", 4_000_000),
        ("Memcpy DtoD (Device -> Device)", 4_000_000),
        ("Memcpy PtoP (Device -> Device)", 4_000_000),
        ("Memset (Device)", 4_000_000),
        ("Memcpy DtoH (Device -> Pageable)", 4),
    ]
    assert [event["name"] for event in slices(trace, "kernel")] == ["aten::copy_"]


def test_every_stream_of_every_device_has_a_track_with_a_name(export):
    stream = torch.openreg.Stream("openreg:1")
    with profile() as prof:
        torch.ones(8, device="openreg")
        with torch.openreg.stream(stream):
            torch.ones(8, device="openreg:1")
        torch.openreg.synchronize(1)
    trace = export(prof)
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["pid"] in range(16)
    }
    assert names["process_name", 0, 0]["name"] == "openreg:0"
    assert names["process_name", 1, 0]["name"] == "openreg:1"
    assert names["thread_name", 0, 0]["name"] == "stream 0 (default)"
    assert names["thread_name", 1, stream.stream_id]["name"] == f"stream {stream.stream_id}"
    assert {pid for _, pid, _ in names} == {0, 1}
    assert [device["id"] for device in trace["deviceProperties"]] == [0, 1]


def test_waits_name_the_stream_that_they_wait_for(export, nothing_before_a_wait):
    first, second = torch.openreg.Stream(), torch.openreg.Stream()
    with profile() as prof:
        torch.ones(8, device="openreg")
        first.wait_stream(torch.openreg.default_stream())
        with torch.openreg.stream(first):
            torch.ones(8, device="openreg")
        second.wait_stream(first)
        torch.openreg.synchronize()
    waits = [event for event in slices(export(prof), "gpu_user_annotation") if event["name"] == "Stream Wait Event"]
    assert sorted((event["tid"], event["args"]["wait_on_stream"]) for event in waits) == [
        (first.stream_id, 0),
        (second.stream_id, first.stream_id),
    ]


def test_host_waits_are_calls_of_the_runtime(export, nothing_before_a_wait):
    with profile() as prof:
        torch.openreg._sleep(1_000_000)
        torch.openreg.synchronize()
    trace = export(prof)
    (wait,) = [event for event in slices(trace, "privateuse1_runtime") if event["name"] == "openregSynchronize"]
    (command,) = [event for event in slices(trace, "kernel") if event["name"] == "openreg::sleep"]
    assert wait["ts"] + wait["dur"] >= command["ts"] + command["dur"]


def test_commands_report_the_thread_that_ran_them(export):
    with profile() as prof:
        torch.openreg._sleep(1_000_000)
        torch.openreg.synchronize()
    (kernel,) = slices(export(prof), "kernel")
    assert kernel["args"]["run by"] in ("engine", "host")
    assert (kernel["args"]["thread"] == threading.get_native_id()) == (kernel["args"]["run by"] == "host")


def test_operators_of_the_calling_thread_are_on_the_stream_too(export):
    x = settled(torch.arange(100, device="openreg"))
    with profile() as prof:
        x.nonzero()
    assert "aten::nonzero" in [event["name"] for event in slices(export(prof), "kernel")]


def test_ranges_of_the_user_cover_their_kernels_on_the_stream(export):
    x = settled(torch.ones(100, device="openreg"))
    with profile() as prof:
        with record_function("a range"):
            x.exp()
            x.cos()
        x.sin()
        torch.openreg.synchronize()
    trace = export(prof)
    (annotation,) = [event for event in slices(trace, "gpu_user_annotation") if event["name"] == "a range"]
    end = annotation["ts"] + annotation["dur"]
    inside = [event["name"] for event in slices(trace, "kernel") if annotation["ts"] <= event["ts"] <= end]
    assert inside == ["aten::exp", "aten::cos"]


def test_shapes_flops_and_stacks_belong_to_the_operators():
    x = settled(torch.randn(64, 64, device="openreg"))
    with profile(record_shapes=True, with_flops=True, with_stack=True) as prof:
        x @ x
    (product,) = [event for event in prof.events() if event.name == "aten::mm" and event.device_type.name == "CPU"]
    assert product.input_shapes == [[64, 64], [64, 64]]
    assert product.flops == 2 * 64**3
    rows = prof.key_averages(group_by_input_shape=True)
    assert any(row.key == "aten::mm" and row.device_time_total > 0 for row in rows)


def test_stacks_can_be_exported_with_the_time_of_the_device(tmp_path):
    x = settled(torch.randn(64, 64, device="openreg"))
    with profile(with_stack=True) as prof:
        x @ x
    prof.export_stacks(str(tmp_path / "stacks"), "self_privateuse1_time_total")


def test_a_schedule_records_its_active_steps_for_tensorboard(tmp_path):
    step = training_step()
    step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that events are kept for one cycle
        with profile(
            schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=tensorboard_trace_handler(str(tmp_path), worker_name="worker"),
        ) as prof:
            for _ in range(9):
                step()
                prof.step()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for file in files:
        assert file.name.startswith("worker.") and file.name.endswith(".pt.trace.json")
        trace = json.loads(file.read_text())
        steps = [event for event in slices(trace, "user_annotation") if event["name"].startswith("ProfilerStep")]
        assert len(steps) == 2
        assert len([event for event in slices(trace, "kernel") if event["name"] == "aten::cos"]) == 2


def test_the_memory_timeline_has_the_devices_memory(tmp_path):
    step = training_step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
            step()
        prof.export_memory_timeline(str(tmp_path / "timeline.json"), device="openreg:0")
    times, sizes = json.loads((tmp_path / "timeline.json").read_text())
    assert len(times) == len(sizes) > 10
    assert max(sum(size) for size in sizes) > 0


def test_stop_and_start_leave_out_a_part_of_a_profile():
    x = settled(torch.ones(8, device="openreg"))
    with profile() as prof:
        x.exp()
        torch.openreg.synchronize()
        torch.openreg.profiler.stop()
        x.cos()
        torch.openreg.synchronize()
        with torch.openreg.profiler.profile():
            x.sin()
            torch.openreg.synchronize()
        x.tan()
        torch.openreg.synchronize()
    assert [event.name for event in prof.events() if event.device_type.name == "OPENREG"] == ["aten::exp", "aten::sin"]


def test_a_full_trace_reports_how_much_it_dropped(run_python):
    output = run_python(
        textwrap.dedent("""
        import torch
        from torch.profiler import profile
        x = torch.ones(8, device="openreg")
        with profile() as prof:
            for _ in range(50):
                x.exp()
        assert len(prof.events()) >= 50 + 20
        """),
        TORCH_OPENREG_TRACE_RECORDS="20",
    ).stderr
    assert "records of the device (it keeps 20); raise TORCH_OPENREG_TRACE_RECORDS" in output


def test_profiles_leave_no_memory_behind():
    x = settled(torch.ones(8, device="openreg"))

    def profile_some():
        with profile(activities=[ProfilerActivity.PrivateUse1]):
            for _ in range(2000):
                x.exp()

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(10):
        profile_some()
    before = resident()
    for _ in range(10):
        profile_some()
    assert resident() - before < 8 << 20  # the slices of ten profiles take 4 MB each


def test_errors_of_commands_are_raised_in_a_profile_as_elsewhere():
    x = settled(torch.ones(4, device="openreg"))
    with profile(), pytest.raises(torch.AcceleratorError):
        x[torch.tensor([99], device="openreg")]
        torch.openreg.synchronize()
    torch.openreg.synchronize()


@pytest.mark.parametrize("use_kineto", [True, False])
def test_the_old_profiler_times_the_devices_operators(use_kineto):
    x = settled(torch.randn(256, 256, device="openreg"))
    with torch.autograd.profiler.profile(use_device="openreg", use_kineto=use_kineto) as prof:
        x @ x
    rows = {row.key: row for row in prof.key_averages() if row.device_type.name == "CPU"}
    assert rows["aten::mm"].device_time_total > 0
