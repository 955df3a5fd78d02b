"""torch.cuda.Event is PyTorch's class, as in a build with CUDA."""

from __future__ import annotations

import pytest
import torch


def test_the_class_is_that_of_pytorch() -> None:
    event = torch.cuda.Event()
    assert type(event) is torch.cuda.Event is torch.cuda.streams.Event
    assert torch.cuda.Event.__module__ == "torch.cuda.streams"
    assert torch.cuda.Event.__bases__ == (torch._C._CudaEventBase,)
    assert issubclass(torch.cuda.Event, torch.Event)
    assert not isinstance(torch.Event("cuda"), torch.cuda.Event)


def test_an_event_has_a_handle_and_a_device_after_its_first_record() -> None:
    event = torch.cuda.Event()
    assert repr(event) == "<torch.cuda.Event uninitialized>"
    assert event.cuda_event == 0 and event._as_parameter_.value is None
    assert event.device is None
    assert event.query()
    with torch.cuda.device(1):
        event.record()
    assert event.cuda_event != 0 and event._as_parameter_.value == event.cuda_event
    assert repr(event) == f"<torch.cuda.Event {event.cuda_event:#x}>"
    assert event.device == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match="cuda:0"):
        event.record(torch.cuda.current_stream(0))


def test_streams_make_events_and_wait_for_them() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
    event = first.record_event()
    assert type(event) is torch.cuda.Event
    assert first.record_event(event) is event
    second.wait_event(event)
    with torch.cuda.stream(second):
        y = x + 1
    second.synchronize()
    assert y.tolist() == [4] * 4
    assert event.query()


@pytest.mark.parametrize("kind", [torch.cuda.Event, type("Timer", (torch.cuda.Event,), {})], ids=["event", "subclass"])
def test_events_time_the_work_between_them(kind: type[torch.cuda.Event]) -> None:
    start, end = kind(enable_timing=True), kind(enable_timing=True)
    start.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 1
    plain = torch.Event("cuda", enable_timing=True)
    plain.record()
    plain.synchronize()
    assert start.elapsed_time(plain) >= start.elapsed_time(end)


def test_times_that_do_not_exist_are_refused() -> None:
    timed = torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))
    untimed = torch.cuda.Event()
    timed.record()
    untimed.record()
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(TypeError, match="takes events"):
        timed.elapsed_time(1)


def test_flags_are_bools_or_small_integers() -> None:
    assert torch.cuda.Event(1, 0, 0, 1).query()
    with pytest.raises(TypeError, match="blocking"):
        torch.cuda.Event(blocking="yes")
    with pytest.raises(OverflowError):
        torch.cuda.Event(enable_timing=256)


def test_an_event_of_one_process_has_no_handle_for_others() -> None:
    with pytest.raises(RuntimeError, match="interprocess=True"):
        torch.cuda.Event().ipc_handle()


def test_compiled_programs_record_events_and_wait_for_them() -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        event.record()
        with torch.cuda.stream(side):
            event.wait()
            z = y + 1
            other = torch.cuda.Event()
            other.record()
        torch.cuda.current_stream().wait_event(other)
        return z * 3

    x = torch.ones(4, device="cuda")
    assert torch.compile(program)(x).tolist() == program(x).tolist() == [9] * 4
