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


def test_default_stream_has_id_zero_on_each_device():
    for index in range(2):
        stream = torch.openreg.default_stream(index)
        assert (stream.stream_id, stream.device_index) == (0, index)
        assert stream == torch.accelerator.current_stream(index)


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


def test_a_stream_is_made_current_by_its_numbers():
    stream = torch.openreg.Stream(device=1)
    torch.openreg._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert torch.openreg.current_stream() == stream


def test_an_external_event_is_an_event():
    event = torch.openreg.Event(external=True)
    event.record()
    event.synchronize()
    assert event.query()
