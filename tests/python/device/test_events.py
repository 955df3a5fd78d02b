"""Events, through torch.Event and torch.openreg.Event."""

from __future__ import annotations

import threading

import pytest
import torch


@pytest.mark.parametrize("make", [torch.Event, torch.openreg.Event])
def test_an_event_has_no_index_before_it_is_recorded(make):
    event = make()
    assert event.device.type == "openreg"
    assert event.device.index is None
    assert event.event_id == 0
    assert isinstance(event, torch.Event)


def test_a_recorded_event_has_its_stream_s_index_and_an_identity():
    first, second = torch.Event("openreg"), torch.Event("openreg")
    stream = torch.Stream("openreg:1")
    first.record(stream)
    second.record(stream)
    assert first.device.index == second.device.index == 1
    assert 0 != first.event_id != second.event_id != 0


def test_elapsed_time_is_positive_between_two_records():
    start, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    start.record()
    x = torch.rand(300, 300, device="openreg")
    y = x @ x
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000
    assert y.shape == (300, 300)


def test_there_is_no_time_between_events_of_two_devices():
    """As in PyTorch's test_events_multi_gpu_elapsed_time, whichever device is current."""
    events = [torch.openreg.Event(enable_timing=True) for _ in range(3)]
    for event, index in zip(events, (0, 1, 0), strict=True):
        event.record(torch.openreg.Stream(index))
        event.synchronize()
    first, foreign, last = events
    for index in range(2):
        with torch.openreg.device(index):
            with pytest.raises(
                RuntimeError, match=r"unknown \(got events of openreg:0 and openreg:1, expected two of one"
            ):
                first.elapsed_time(foreign)
            with pytest.raises(
                RuntimeError, match=r"unknown \(got events of openreg:1 and openreg:0, expected two of one"
            ):
                foreign.elapsed_time(last)
            assert first.elapsed_time(last) > 0


def test_a_stream_of_another_device_waits_for_an_event_but_cannot_record_it():
    source, other = torch.openreg.Stream(0), torch.openreg.Stream(1)
    event = source.record_event()
    with other:
        event.wait()
        other.wait_event(event)
        with pytest.raises(RuntimeError, match=r"recorded on two devices \(got openreg:1, expected openreg:0"):
            event.record()
        with pytest.raises(RuntimeError, match="recorded on two devices"):
            other.record_event(event)
    event.synchronize()
    assert event.device.index == 0


def test_an_event_of_one_thread_is_used_in_another():
    event, seen = torch.openreg.Event(enable_timing=True), []

    def work() -> None:
        torch.openreg.set_device(1)
        event.record()
        seen.append(event.device.index)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    event.synchronize()
    assert seen == [1] and event.query() and torch.openreg.current_device() == 0


def test_two_streams_wait_for_one_event():
    source = torch.openreg.Stream()
    with source:
        x = torch.full((2048,), 2.0, device="openreg")
        event = source.record_event()
    sums = []
    for stream in (torch.openreg.Stream(), torch.openreg.Stream(priority=-1)):
        event.wait(stream)
        with stream:
            sums.append(x.sum())
        stream.synchronize()
    assert event.query()
    assert [s.item() for s in sums] == [4096, 4096]


def test_an_event_is_recorded_again_and_waits_mean_the_newest_record():
    event = torch.openreg.Event()
    x = torch.zeros(128, device="openreg")
    stream = torch.openreg.Stream()
    stream.wait_stream(torch.openreg.current_stream())
    for expected in range(1, 6):
        with stream:
            x += 1
            event.record()
        event.synchronize()
        assert event.query()
        assert x[0].item() == expected


def test_record_without_a_stream_takes_the_current_one():
    torch.openreg.set_device(1)
    event = torch.Event("openreg")
    event.record()
    event.synchronize()
    assert event.device.index == 1
    assert torch.openreg.current_device() == 1


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_synchronizing_an_event_does_not_wait_for_later_work():
    x = torch.rand(1000, 1000, device="openreg")
    torch.accelerator.synchronize()
    event = torch.accelerator.current_stream().record_event()
    for _ in range(20):
        y = x @ x
    event.synchronize()
    assert event.query()
    assert not torch.accelerator.current_stream().query()
    torch.accelerator.synchronize()
    assert y.shape == x.shape


def test_interprocess_events_are_refused():
    with pytest.raises(RuntimeError, match=r"openreg: interprocess events are not supported.*synchronize\(\)"):
        torch.openreg.Event(interprocess=True)
    with pytest.raises(RuntimeError, match="openreg: interprocess events are not supported"):
        torch.openreg.Event.from_ipc_handle(0, b"")
    with pytest.raises(RuntimeError, match="not supported"):
        torch.openreg.Event().ipc_handle()
