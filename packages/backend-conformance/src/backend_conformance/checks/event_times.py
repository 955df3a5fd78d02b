"""Times between events: what `Event.elapsed_time` measures on the device.

Events made with `enable_timing=True` take the time at which the stream reaches them. The host cannot know it exactly;
it knows bounds.
"""

from __future__ import annotations

import time

import torch

from backend_conformance import Device, Level, check, vacuous
from backend_conformance.evidence import Trials, expect_error


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::elapsedTime", needs=("streams",))
def elapsed_time_is_the_time_of_the_work(device: Device) -> None:
    """`elapsed_time` is between the lower and the upper bound that the host measured.

    elapsedTime returns milliseconds. The host sees the first event complete before it submits the work, and the
    second one incomplete afterwards: the device's time cannot be less than the time between. It cannot be more than
    the whole.
    """
    stream = torch.Stream(device.this)
    shown = False
    for _ in range(6):
        start, end = (torch.Event(device.this, enable_timing=True) for _ in range(2))
        began = time.perf_counter()
        start.record(stream)
        start.synchronize()
        submitted = time.perf_counter()
        device.enough_work(stream)
        end.record(stream)
        at_least = 0.0
        for _ in range(200000):
            now = time.perf_counter()
            if end.query():
                break
            at_least = 1e3 * (now - submitted)
        end.synchronize()
        at_most = 1e3 * (time.perf_counter() - began)
        elapsed = start.elapsed_time(end)
        assert elapsed <= 1.05 * at_most + 0.1, (
            f"elapsed_time is {elapsed:.3f} ms; the host measured {at_most:.3f} ms at most"
        )
        assert elapsed >= 0.95 * at_least - 0.1, (
            f"elapsed_time is {elapsed:.3f} ms; the host measured {at_least:.3f} ms at least"
        )
        shown = shown or at_least > 1
        if shown:
            return
    vacuous("no work took the device a millisecond beside the host")


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::elapsedTime", needs=("streams",))
def elapsed_times_add_up(device: Device) -> None:
    """The times between three events of a stream add up, and none is negative.

    A clock that is read when the event is queried, not when the stream reaches it, does not add up.
    """
    stream = torch.Stream(device.this)
    events = [torch.Event(device.this, enable_timing=True) for _ in range(3)]
    events[0].record(stream)
    device.enough_work(stream)
    events[1].record(stream)
    device.enough_work(stream)
    events[2].record(stream)
    events[2].synchronize()
    time.sleep(0.02)
    first, second = events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])
    whole = events[0].elapsed_time(events[2])
    assert first >= 0 and second >= 0, f"negative times: {first}, {second}"
    assert abs(first + second - whole) <= 0.01 * whole + 0.05, f"{first} ms + {second} ms is not {whole} ms"
    assert abs(events[0].elapsed_time(events[2]) - whole) < 0.01, "the same time was measured differently"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::queryEvent", needs=("streams",))
def elapsed_time_needs_complete_events(device: Device) -> None:
    """`elapsed_time` raises an error for events without timing, unrecorded and incomplete events.

    PyTorch checks this itself, by the flag and by queryEvent: a query that is always True makes elapsedTime wait, or
    return a wrong time.
    """
    stream = torch.Stream(device.this)
    plain = [stream.record_event(torch.Event(device.this)) for _ in range(2)]
    stream.synchronize()
    expect_error(lambda: plain[0].elapsed_time(plain[1]), ValueError)
    timed = [torch.Event(device.this, enable_timing=True) for _ in range(2)]
    expect_error(lambda: timed[0].elapsed_time(timed[1]), (ValueError, RuntimeError))
    trials = Trials(device, stream, wanted=1)
    for _ in trials:
        timed[0].record(stream)
        device.enough_work(stream)
        timed[1].record(stream)
        if not timed[1].query():
            trials.ahead()
            expect_error(lambda: timed[0].elapsed_time(timed[1]), (ValueError, RuntimeError))
        stream.synchronize()
        assert timed[0].elapsed_time(timed[1]) >= 0
