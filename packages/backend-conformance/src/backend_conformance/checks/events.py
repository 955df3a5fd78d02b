"""Events: marks in streams, for order and for time.

`torch.Event` calls the guard's record, block, queryEvent, synchronizeEvent, elapsedTime and destroyEvent. The
backend's event is created at the first record, on the device of the stream.
"""

from __future__ import annotations

import time

import torch

from backend_conformance import Device, Level, check, missing, vacuous
from backend_conformance.evidence import Trials, buffers, in_threads, late_writes, value, value_on


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams",))
def unrecorded_event_is_complete(device: Device) -> None:
    """An event that was never recorded is complete; waiting for it does nothing.

    PyTorch answers some of these calls itself, and passes others on with a null pointer.
    """
    event, stream = torch.Event(device.this), torch.Stream(device.this)
    assert event.query() is True, "an event that was never recorded is not complete"
    event.synchronize()
    event.wait()
    event.wait(stream)
    stream.wait_event(event)
    with stream:
        work = torch.ones(4, device=device.this) + 1
    stream.synchronize()
    assert value(work) == 2


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::queryEvent", needs=("streams",))
def query_tells_whether_the_event_is_complete(device: Device) -> None:
    """`Event.query` is False until the work before the record is complete.

    It calls queryEvent, which must not wait. The check polls until it is True, and reads on another stream, without a
    wait.
    """
    stream, event = torch.Stream(device.this), torch.Event(device.this)
    (x,) = buffers(device, 1)
    for number in late_writes(device, stream, x):
        event.record(stream)
        while not event.query():
            time.sleep(0.0005)
        assert value(x) == number, "query() was True before the work was complete"
        event.synchronize()
        assert event.query() is True, "the event is not complete after synchronize()"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::synchronizeEvent", needs=("streams",))
def synchronize_waits_for_the_event(device: Device) -> None:
    """After `Event.synchronize` the work before the record is complete.

    It calls synchronizeEvent. The checks read the result on another stream, without a wait.
    """
    stream, event = torch.Stream(device.this), torch.Event(device.this)
    (x,) = buffers(device, 1)
    for number in late_writes(device, stream, x):
        event.record(stream)
        event.synchronize()
        assert value(x) == number, "synchronize() returned before the work before the record was complete"


@check(level=Level.COMPLETE, hook="DeviceGuardImplInterface::synchronizeEvent", needs=("streams",))
def synchronize_does_not_wait_for_later_work(device: Device) -> None:
    """`Event.synchronize` returns while work that follows the record is unfinished.

    An event is a position in the stream. Waiting for the whole stream is correct, but loses the concurrency.
    """
    stream, event = torch.Stream(device.this), torch.Event(device.this)
    for _ in range(6):
        with stream:
            torch.ones(8, device=device.this)
        event.record(stream)
        device.enough_work(stream)
        event.synchronize()
        if not stream.query():
            stream.synchronize()
            return
    vacuous("the later work was always complete when synchronize() returned")


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::block", needs=("streams",))
def waiting_stream_sees_earlier_work(device: Device) -> None:
    """A stream that waits for an event runs after the work recorded before it.

    `Event.wait` and `Stream.wait_event` call block. A block that does nothing lets the stream read former values.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.this)
    x, y = buffers(device, 2)
    for number in late_writes(device, producer, x, wanted=4):
        event = torch.Event(device.this)
        event.record(producer)
        with consumer:
            if number % 2:
                event.wait()
            else:
                consumer.wait_event(event)
        assert value_on(consumer, x, y) == number, f"the waiting stream read {value(y)}, the former value, not {number}"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams",))
def second_record_does_not_release_earlier_waits(device: Device) -> None:
    """A stream that waits for an event waits for the record before the wait, even if it is recorded again.

    An event with a counter instead of a position breaks this: a second record on a fast stream completes the counter.
    """
    slow, fast, consumer = (torch.Stream(device.this) for _ in range(3))
    event = torch.Event(device.this)
    x, y = buffers(device, 2)
    for number in late_writes(device, slow, x):
        event.record(slow)
        consumer.wait_event(event)
        event.record(fast)
        event.synchronize()
        assert value_on(consumer, x, y) == number, "a second record released a stream that waited for the first"
        slow.synchronize()


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams",))
def event_means_its_newest_record(device: Device) -> None:
    """An event that is recorded again is incomplete until the work before the new record is complete.

    record receives the existing event; it must forget the former state.
    """
    idle, busy, event = torch.Stream(device.this), torch.Stream(device.this), torch.Event(device.this)
    (x,) = buffers(device, 1)
    trials = Trials(device, busy)
    for number in trials:
        event.record(idle)
        event.synchronize()
        with busy:
            x.fill_(number)
        event.record(busy)
        trials.ahead()
        event.synchronize()
        assert value(x) == number, "synchronize() waited for the former record only"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams",))
def record_uses_the_current_stream(device: Device) -> None:
    """`Event.record()` without an argument records on the current stream.

    PyTorch asks getStream for it. Recording on the default stream instead completes the event at once.
    """
    stream, event = torch.Stream(device.this), torch.Event(device.this)
    (x,) = buffers(device, 1)
    for number in late_writes(device, stream, x):
        with stream:
            event.record()
        event.synchronize()
        assert value(x) == number, "the event was not recorded on the current stream"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams",))
def record_event_returns_a_recorded_event(device: Device) -> None:
    """`Stream.record_event` makes an event, or takes one, and records it on that stream.

    The event's device is then the stream's, and its event_id is not 0.
    """
    stream, given = torch.Stream(device.this), torch.Event(device.this)
    (x,) = buffers(device, 1)
    for number in late_writes(device, stream, x):
        event = stream.record_event() if number % 2 else stream.record_event(given)
        assert event.device == device.this and event.event_id != 0
        assert number % 2 or event is given
        event.synchronize()
        assert value(x) == number


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::destroyEvent", needs=("streams",))
def events_may_be_destroyed_early(device: Device) -> None:
    """The order remains if the event is destroyed before its work is complete.

    `wait_stream` destroys its event at once. destroyEvent must leave the queued wait alone, and must not throw.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.this)
    x, y = buffers(device, 2)
    for number in late_writes(device, producer, x):
        event = producer.record_event()
        consumer.wait_event(event)
        del event
        reused = [torch.Stream(device.this).record_event() for _ in range(8)]  # may take the freed event's place
        assert value_on(consumer, x, y) == number, "a destroyed event released the stream that waited for it"
        del reused


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record, block", needs=("streams",))
def events_pass_between_threads(device: Device) -> None:
    """An event that one thread records orders a stream of another thread.

    Autograd's threads and a pipeline's loader threads do this.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.this)
    x, y = buffers(device, 2)
    event = torch.Event(device.this)
    trials = Trials(device, producer)
    for number in trials:

        def write(number: int = number) -> None:
            with producer:
                x.fill_(number)
                event.record()

        in_threads(write)
        trials.ahead()
        with consumer:
            event.wait()
            y.copy_(x)
        consumer.synchronize()
        assert value(y) == number


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record", needs=("streams", "several_devices"))
def events_are_on_the_device_of_their_stream(device: Device) -> None:
    """An event recorded on a stream of device 1 is on device 1, whatever the current device is.

    record receives the stream; it must switch to the stream's device, and back.
    """
    event = torch.Event(torch.device(device.name))
    stream = torch.Stream(device.other)
    (x,) = buffers(device, 1, device.other)
    for number in late_writes(device, stream, x):
        event = stream.record_event()
        assert event.device == device.other, f"the event is on {event.device}"
        assert torch.accelerator.current_device_index() == 0, "record changed the current device"
        event.synchronize()
        assert value(x) == number


@check(level=Level.COMPLETE, hook="Event of the device module", needs=("streams",))
def module_has_events(device: Device) -> None:
    """The device module offers `Event`, which derives from `torch.Event` and can be made with timing.

    Dynamo and FSDP look it up by name.
    """
    if not hasattr(device.module, "Event"):
        missing(f"torch.{device.name} has no attribute Event")
    start, end = device.module.Event(enable_timing=True), device.module.Event(enable_timing=True)
    assert isinstance(start, torch.Event)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
