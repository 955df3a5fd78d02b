"""Streams, through torch.Stream, torch.accelerator and torch.openreg."""

from __future__ import annotations

import time

import pytest
import torch


def test_a_stream_or_event_of_the_device_is_one_of_the_modules_whoever_made_it():
    assert isinstance(torch.Stream("openreg:1"), torch.openreg.Stream)
    assert isinstance(torch.Event("openreg"), torch.openreg.Event)
    assert not isinstance(torch.Event("cpu"), torch.openreg.Event)
    assert not isinstance(torch.Event("openreg"), torch.openreg.Stream)


def test_repr_names_device_and_index():
    assert "torch.Stream device_type=openreg, device_index=1" in repr(torch.Stream("openreg:1"))


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


def test_default_stream_has_id_zero_on_each_device():
    for index in range(2):
        stream = torch.openreg.default_stream(index)
        assert (stream.stream_id, stream.device_index) == (0, index)
        assert stream == torch.accelerator.current_stream(index)


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
