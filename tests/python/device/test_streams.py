"""Streams, through torch.Stream, torch.accelerator and torch.openreg."""

from __future__ import annotations

import threading
import time

import pytest
import torch


def test_a_stream_lies_on_the_current_or_the_named_device():
    assert torch.Stream().device_index == torch.openreg.Stream().device_index == 0
    for given in ("openreg:1", torch.device("openreg:1")):
        assert torch.Stream(given).device_index == torch.openreg.Stream(given).device_index == 1
    assert torch.Stream(1).device_index == torch.openreg.Stream(1).device_index == 1
    with torch.openreg.device(1):
        assert torch.Stream(device="openreg").device_index == torch.openreg.Stream().device_index == 1


def test_a_stream_or_event_of_the_device_is_one_of_the_modules_whoever_made_it():
    assert isinstance(torch.Stream("openreg:1"), torch.openreg.Stream)
    assert isinstance(torch.Event("openreg"), torch.openreg.Event)
    assert not isinstance(torch.Event("cpu"), torch.openreg.Event)
    assert not isinstance(torch.Event("openreg"), torch.openreg.Stream)


@pytest.mark.parametrize("priority", [-1, 0])
def test_a_stream_takes_a_priority(priority):
    stream = torch.openreg.Stream(priority=priority)
    assert isinstance(stream, torch.Stream)
    with stream:
        assert torch.ones(2, device="openreg").add(1).tolist() == [2, 2]


def test_streams_are_equal_by_identity():
    first, second = torch.Stream("openreg:1"), torch.Stream("openreg:1")
    again = torch.Stream(stream_id=first.stream_id, device_type=first.device_type, device_index=first.device_index)
    assert first == first == again
    assert first != second
    assert hash(first) == hash(again)
    of_module = torch.openreg.Stream(
        stream_id=first.stream_id, device_type=first.device_type, device_index=first.device_index
    )
    assert of_module == first and isinstance(of_module, torch.openreg.Stream)


def test_repr_names_device_and_index():
    assert "torch.Stream device_type=openreg, device_index=1" in repr(torch.Stream("openreg:1"))


def test_constructing_a_stream_does_not_make_it_current():
    before = torch.accelerator.current_stream()
    torch.Stream("openreg:1")
    assert torch.accelerator.current_stream() == before == torch.openreg.default_stream()


def test_a_stream_is_a_context_and_contexts_nest():
    outer, inner = torch.Stream("openreg:0"), torch.Stream("openreg:1")
    with outer:
        assert torch.accelerator.current_stream() == outer
        with inner:
            assert torch.accelerator.current_stream() == inner
            assert torch.openreg.current_device() == 1
        assert torch.accelerator.current_stream() == outer
        assert torch.openreg.current_device() == 0
    assert torch.accelerator.current_stream() == torch.openreg.default_stream()


def test_stream_function_takes_a_stream_or_none():
    stream = torch.openreg.Stream()
    with torch.openreg.stream(stream):
        assert torch.openreg.current_stream() == stream
        with torch.openreg.stream(None):
            assert torch.openreg.current_stream() == stream
    assert torch.openreg.current_stream() == torch.openreg.default_stream()
    assert isinstance(torch.openreg.current_stream(), torch.openreg.Stream)


def test_set_stream_switches_the_device_too():
    stream = torch.Stream("openreg:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    assert torch.openreg.current_device() == 1
    torch.openreg.set_stream(None)
    assert torch.openreg.current_stream() == stream


def test_each_device_keeps_its_own_current_stream():
    streams = [torch.openreg.Stream(i) for i in range(2)]
    for stream in streams:
        torch.openreg.set_stream(stream)
    for index, stream in enumerate(streams):
        torch.openreg.set_device(index)
        assert torch.openreg.current_stream() == torch.openreg.current_stream(index) == stream


def test_each_thread_starts_on_the_default_stream():
    torch.openreg.set_stream(torch.openreg.Stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.openreg.current_stream()))
    thread.start()
    thread.join()
    assert seen == [torch.openreg.default_stream()]


def test_default_stream_has_id_zero_on_each_device():
    for index in range(2):
        stream = torch.openreg.default_stream(index)
        assert (stream.stream_id, stream.device_index) == (0, index)
        assert stream == torch.accelerator.current_stream(index)


def test_a_fresh_stream_is_idle_and_a_synchronized_one_too():
    stream = torch.Stream("openreg")
    assert stream.query()
    with stream:
        y = torch.ones(256, 256, device="openreg") @ torch.ones(256, 256, device="openreg")
    stream.synchronize()
    assert stream.query()
    assert y[0, 0].item() == 256


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_stream_with_work_is_not_idle():
    """The work waits behind an event whose own stream is kept busy, so the answer cannot be late."""
    x = torch.rand(1200, 1200, device="openreg")
    busy, waiting = torch.openreg.Stream(), torch.openreg.Stream()
    torch.accelerator.synchronize()
    with busy:
        for _ in range(5):
            y = x @ x
    waiting.wait_stream(busy)
    with waiting:
        z = y + 1
    assert not waiting.query()
    waiting.synchronize()
    assert waiting.query() and busy.query()
    torch.testing.assert_close(z.cpu(), x.cpu() @ x.cpu() + 1)


def test_streams_wait_for_streams_of_another_device():
    first, second = torch.Stream("openreg:0"), torch.Stream("openreg:1")
    with first:
        x = torch.full((512,), 3.0, device="openreg:0")
    second.wait_stream(first)
    with second:
        y = x.to("openreg:1") * 2
    second.synchronize()
    assert y.device.index == 1
    assert y.sum().item() == 512 * 6


def test_record_event_is_complete_after_synchronize():
    stream = torch.Stream("openreg:1")
    event = stream.record_event()
    assert event.device.type == "openreg"
    stream.synchronize()
    assert event.query()


def chain(streams):
    """Ten steps on the given streams in turn, each waiting for the one before; the sum is known."""
    x = torch.zeros(1000, device="openreg")
    previous = torch.accelerator.current_stream()
    for step in range(10):
        stream = streams[step % len(streams)]
        stream.wait_stream(previous)
        with stream:
            x.add_(step)
        x.record_stream(stream)
        previous = stream
    torch.accelerator.current_stream().wait_stream(previous)
    return x.sum().item()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_chain_of_streams_keeps_its_order(count):
    assert chain([torch.openreg.Stream() for _ in range(count)]) == 45 * 1000


def test_a_diamond_of_streams_joins():
    source, left, right, sink = (torch.openreg.Stream() for _ in range(4))
    with source:
        x = torch.ones(4096, device="openreg")
    ready = source.record_event()
    for stream in (left, right):
        stream.wait_event(ready)
    with left:
        y = x * 2
    with right:
        z = x * 3
    sink.wait_event(left.record_event())
    sink.wait_event(right.record_event())
    with sink:
        total = (y + z).sum()
    sink.synchronize()
    assert total.item() == 5 * 4096


def test_many_streams_created_used_and_dropped():
    total = torch.zeros((), device="openreg")
    for _ in range(200):
        stream = torch.openreg.Stream()
        stream.wait_stream(torch.openreg.default_stream())
        with stream:
            total += 1
        torch.openreg.default_stream().wait_stream(stream)
    assert total.item() == 200


def test_synchronize_keeps_the_device():
    torch.openreg.set_device(1)
    torch.accelerator.synchronize(0)
    torch.openreg.synchronize("openreg:0")
    assert torch.openreg.current_device() == 1


@pytest.mark.parametrize(("given", "expected"), [(0, 0), (-1, -1), (-7, -1)])
def test_a_stream_reports_its_priority(given, expected):
    assert torch.openreg.Stream(priority=given).priority == expected
    lowest, highest = torch.openreg.Stream.priority_range()
    assert highest <= expected <= lowest


def test_a_stream_is_an_argument_of_ctypes():
    stream = torch.openreg.Stream()
    assert stream._as_parameter_.value == stream.native_handle != 0


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_sleep_keeps_the_stream_busy_and_not_the_host():
    stream = torch.openreg.Stream()
    begin, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    launched = time.monotonic()
    with stream:
        begin.record()
        torch.openreg._sleep(1_000_000_000)
        end.record()
    assert time.monotonic() - launched < 1
    assert not stream.query() and torch.openreg.default_stream().query()
    end.synchronize()
    assert begin.elapsed_time(end) >= 1000


@pytest.mark.parametrize(("cycles", "error"), [(-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_sleep_refuses(cycles, error):
    with pytest.raises(error):
        torch.openreg._sleep(cycles)


@pytest.mark.parametrize("make", [torch.openreg.ExternalStream, torch.openreg.get_stream_from_external])
def test_a_native_handle_gives_its_stream(make):
    stream = torch.openreg.Stream(device=1, priority=-1)
    found = make(stream.native_handle, device="openreg:1")
    assert found == stream and found.priority == -1 and isinstance(found, torch.openreg.ExternalStream)
    assert not isinstance(stream, torch.openreg.ExternalStream)
    with found:
        assert torch.openreg.current_stream() == stream
        assert torch.ones(2, device="openreg").add(1).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=r"openreg:0 has no stream with this handle \(got \d+, expected"):
        make(stream.native_handle, device=0)
    with pytest.raises(RuntimeError, match="no stream with this handle"):
        make(stream.native_handle + 8, device=1)


def test_a_stream_context_restores_stream_and_device():
    stream = torch.openreg.Stream(device=1)
    with torch.openreg.StreamContext(stream):
        assert torch.openreg.current_stream() == stream
        with torch.openreg.StreamContext(None):
            assert torch.openreg.current_stream() == stream
    assert torch.openreg.current_stream() == torch.openreg.default_stream(0)
    with pytest.raises(ZeroDivisionError), torch.openreg.StreamContext(stream):
        _ = 1 / 0
    assert torch.openreg.current_device() == 0


def test_a_stream_is_made_current_by_its_numbers():
    stream = torch.openreg.Stream(device=1)
    torch.openreg._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert torch.openreg.current_stream() == stream


def test_an_external_event_is_an_event():
    event = torch.openreg.Event(external=True)
    event.record()
    event.synchronize()
    assert event.query()
