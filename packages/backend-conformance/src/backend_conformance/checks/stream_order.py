"""The order of streams: work of one stream runs in order, and work of two streams if an event orders it.

Each check prepares memory, submits slow work to one stream, and lets another one wait. The values show which came
first. A wait that does nothing reads the former values. The checks count only if the first stream was unfinished when
the other one waited.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import Trials, buffers, late_writes, value, value_on


@check(level=Level.ASYNCHRONOUS, hook="streams of the device run their work in order", needs=("streams",))
def work_of_a_stream_runs_in_order(device: Device) -> None:
    """Operations of one stream run in the order of their calls.

    This is what a stream is. The results of x * 2 + 3 and (x + 3) * 2 differ, so a changed order shows.
    """
    stream = torch.Stream(device.this)
    x, y = buffers(device, 2)
    for number in late_writes(device, stream, x):
        with stream:
            for _ in range(4):
                x.mul_(2)
                x.add_(3)
            y.copy_(x)
            x.zero_()
        stream.synchronize()
        assert value(y) == 16 * number + 45 and value(x) == 0, f"operations changed places: {value(y)}, {value(x)}"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record, block", needs=("streams",))
def wait_stream_orders_streams(device: Device) -> None:
    """A stream that waits for another one reads what that one wrote before.

    `Stream.wait_stream` records an event on the other stream and blocks this one on it.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.this)
    x, y = buffers(device, 2)
    for number in late_writes(device, producer, x):
        consumer.wait_stream(producer)
        assert value_on(consumer, x, y) == number, f"the waiting stream read {value(y)}, the former value, not {number}"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::block", needs=("streams",))
def chains_of_streams_keep_their_order(device: Device) -> None:
    """Fan-out and fan-in over five streams give the values of the sequential program.

    Each waiting stream must wait for all events on which it was blocked, not only for the newest.
    """
    streams = [torch.Stream(device.this) for _ in range(5)]
    source, *parts, total = buffers(device, 5)
    first, *middle, last = streams
    for number in late_writes(device, first, source):
        for factor, (stream, part) in enumerate(zip(middle, parts, strict=True), start=1):
            stream.wait_stream(first)
            with stream:
                part.copy_(source)
                part.mul_(factor)
            last.wait_stream(stream)
        with last:
            torch.add(parts[0], parts[1], out=total)
            total.add_(parts[2])
        last.synchronize()
        assert value(total) == 6 * number, f"the sum is {value(total)}, not {6 * number}"


@check(level=Level.COMPLETE, hook="DeviceGuardImplInterface::block", needs=("streams",))
def waiting_does_not_block_the_host(device: Device) -> None:
    """`wait_stream` returns while the other stream still works.

    block() must queue the wait. Waiting on the host is ordered as well, but the program no longer runs ahead.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.this)
    x, y = buffers(device, 2)
    trials = Trials(device, producer)
    for number in trials:
        with producer:
            x.fill_(number)
        consumer.wait_stream(producer)
        with consumer:
            y.copy_(x)
        trials.ahead()
        consumer.synchronize()
        assert value(y) == number


@check(level=Level.ASYNCHRONOUS, hook="record, block", needs=("streams", "several_devices"))
def streams_of_two_devices_are_ordered(device: Device) -> None:
    """A stream of one device waits for a stream of another one.

    block() receives an event of another device than the stream's. Data parallel training depends on it.
    """
    producer, consumer = torch.Stream(device.this), torch.Stream(device.other)
    (x,) = buffers(device, 1)
    y, z = buffers(device, 2, device.other)
    y.copy_(x)
    torch.accelerator.synchronize(1)
    for number in late_writes(device, producer, x):
        with producer:
            y.copy_(x)
        consumer.wait_stream(producer)
        assert value_on(consumer, y, z) == number, f"the stream of the other device read {value(z)}, not {number}"
        torch.accelerator.synchronize(0)
