"""Streams: queues of a device, in which work runs in order.

`torch.Stream` and `torch.accelerator` are complete in PyTorch; they call the backend's device guard. The checks of
order submit slow work first, and count only if the host was ahead of the device when the order mattered. A device
that completes each operation before the call returns is ordered without streams, and so is a stub: the verdict is
"vacuous" for both.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial

import torch

from backend_conformance import Device, Level, check, missing
from backend_conformance.evidence import buffers, in_threads, late_writes, value


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::getStream")
def current_stream_belongs_to_the_device(device: Device) -> None:
    """The current stream is a stream of the current device.

    `torch.accelerator.current_stream()` asks the guard's getStream. Even a device without streams returns one, the
    default stream of the device index it was asked for.
    """
    for index in range(device.count):
        stream = torch.accelerator.current_stream(device.at(index))
        assert stream.device == device.at(index), f"the current stream of {device.at(index)} is on {stream.device}"
    assert torch.accelerator.current_stream() == torch.accelerator.current_stream(device.this)


@check(level=Level.BOOTS, hook="DeviceGuardImplInterface::synchronizeDevice")
def device_can_be_synchronized(device: Device) -> None:
    """`torch.accelerator.synchronize` accepts no argument, an index, a name and a `torch.device`.

    It calls synchronizeDevice with the index. Programs call it before they measure time and at their end.
    """
    torch.accelerator.synchronize()
    for index in range(device.count):
        torch.accelerator.synchronize(index)
        torch.accelerator.synchronize(f"{device.name}:{index}")
        torch.accelerator.synchronize(device.at(index))
    assert torch.accelerator.current_device_index() == 0, "synchronize changed the current device"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::getNewStream", needs=("streams",))
def new_streams_differ(device: Device) -> None:
    """A new stream differs from the current stream and from other new streams.

    `torch.Stream(device)` calls getNewStream. A backend that returns the default stream loses all concurrency.
    """
    first, second = torch.Stream(device.this), torch.Stream(device.this)
    assert first.device == device.this and second.device == device.this
    assert first != second, "two new streams are equal"
    current = torch.accelerator.current_stream()
    assert current not in (first, second), "a new stream is the current stream"
    assert torch.accelerator.current_stream() == current, "making a stream changed the current stream"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::getNewStream", needs=("streams", "several_devices"))
def new_streams_are_on_the_device_asked_for(device: Device) -> None:
    """A stream of another device has that device's index, and the current device stays.

    getNewStream receives the device, which need not be the current one.
    """
    assert torch.Stream(device.other).device == device.other
    assert torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(1):
        assert torch.Stream(torch.device(device.name)).device == device.other, "no index means the current device"


@check(level=Level.COMPLETE, hook="DeviceGuardImplInterface::getNewStream", needs=("streams",))
def streams_do_not_accumulate(device: Device) -> None:
    """Thousands of new streams use a limited number of queues.

    PyTorch has no function that releases a stream, so getNewStream must take it from a pool (CUDA's has 32 for each
    priority). Otherwise a program that makes a stream for each batch runs out of queues.
    """
    identities = {torch.Stream(device.this).stream_id for _ in range(4000)}
    assert len(identities) <= 1024, f"4000 calls made {len(identities)} streams"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::getNewStream", needs=("streams",))
def streams_have_priorities(device: Device) -> None:
    """Streams can be made with a priority, and compute.

    The priority is a hint (lower numbers are more urgent); values out of the device's range are clamped. FSDP makes its
    streams with priority -1.
    """
    for priority in (0, -1, -100):
        stream = torch.Stream(device.this, priority=priority)
        with stream:
            result = torch.full((8,), 2.0, device=device.this) * 3
        stream.synchronize()
        assert value(result) == 6


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::exchangeStream", needs=("streams",))
def stream_context_restores_the_stream(device: Device) -> None:
    """`with stream:` makes it current, nests, and restores the former stream, also after an exception.

    It calls exchangeStream, which returns the former stream of that device.
    """
    before = torch.accelerator.current_stream()
    outer, inner = torch.Stream(device.this), torch.Stream(device.this)
    with outer:
        assert torch.accelerator.current_stream() == outer
        with contextlib.suppress(KeyError), inner:
            assert torch.accelerator.current_stream() == inner
            raise KeyError
        assert torch.accelerator.current_stream() == outer, "the outer stream was not restored"
    assert torch.accelerator.current_stream() == before, "the former stream was not restored"


@check(level=Level.ASYNCHRONOUS, hook="exchangeStream, exchangeDevice", needs=("streams", "several_devices"))
def stream_context_switches_the_device(device: Device) -> None:
    """`with stream:` of another device makes that device current, and restores both, also after an exception.

    PyTorch calls exchangeDevice and exchangeStream; exchangeStream itself must not switch the device.
    """
    before, elsewhere = torch.accelerator.current_stream(), torch.accelerator.current_stream(device.other)
    stream = torch.Stream(device.other)
    with stream:
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == stream
        assert torch.accelerator.current_stream(device.this) == before, "the other device's current stream changed, too"
        assert torch.ones(1, device=device.name).device == device.other
    with contextlib.suppress(KeyError), stream:
        raise KeyError
    assert torch.accelerator.current_device_index() == 0
    assert torch.accelerator.current_stream() == before
    assert torch.accelerator.current_stream(device.other) == elsewhere, "the other device kept the stream"


@check(level=Level.ASYNCHRONOUS, hook="exchangeStream, setDevice", needs=("streams", "several_devices"))
def set_stream_switches_the_device(device: Device) -> None:
    """`torch.accelerator.set_stream` of another device's stream makes that device current.

    Each device keeps a current stream of its own, so setting one of them leaves the others alone.
    """
    before, elsewhere = torch.accelerator.current_stream(), torch.accelerator.current_stream(device.other)
    stream = torch.Stream(device.other)
    try:
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == stream
        assert torch.accelerator.current_stream(device.this) == before
    finally:
        torch.accelerator.set_stream(elsewhere)
        torch.accelerator.set_device_index(0)


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::exchangeStream", needs=("streams",))
def current_stream_belongs_to_the_thread(device: Device) -> None:
    """A thread begins with the default stream, whatever its parent's current stream is.

    The current stream is a thread-local value. PyTorch's autograd threads rely on it.
    """
    stream, seen = torch.Stream(device.this), []
    default = torch.accelerator.current_stream()

    def look() -> None:
        seen.append(torch.accelerator.current_stream())
        torch.accelerator.set_stream(torch.Stream(device.this))

    with stream:
        in_threads(look)
        assert torch.accelerator.current_stream() == stream, "another thread changed this thread's stream"
    assert seen == [default], f"a new thread's current stream is {seen}, not the default stream"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::getNewStream", needs=("streams",))
def streams_are_rebuilt_from_their_numbers(device: Device) -> None:
    """A stream made from another one's stream_id, device_index and device_type is equal to it, and is that queue.

    Dynamo and C++ extensions pass streams as these three numbers. The stream_id must identify the queue.
    """
    for stream in (
        torch.Stream(device.this),
        torch.Stream(device.at(device.count - 1)),
        torch.accelerator.current_stream(),
    ):
        again = torch.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )
        assert again == stream and hash(again) == hash(stream) and again.device == stream.device
        with again:
            assert torch.accelerator.current_stream() == stream
            work = torch.full((8,), 1.0, device=stream.device) + 1
        stream.synchronize()
        assert stream.query() and value(work) == 2


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::queryStream", needs=("streams",))
def query_tells_whether_work_is_unfinished(device: Device) -> None:
    """`Stream.query` is False while work is unfinished; once it is True, others may read the results.

    It calls queryStream, which must not wait. The check polls, and then reads on another stream, without a wait.
    """
    stream = torch.Stream(device.this)
    (written,) = buffers(device, 1)
    for number in late_writes(device, stream, written):
        while not stream.query():
            time.sleep(0.0005)
        assert value(written) == number, "query() was True before the work was complete"
        stream.synchronize()
        assert stream.query() is True, "the stream has unfinished work after synchronize()"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::synchronizeStream", needs=("streams",))
def synchronize_waits_for_the_stream(device: Device) -> None:
    """After `Stream.synchronize` other streams read what the stream wrote, without an event.

    It calls synchronizeStream. Without the wait, a copy on the current stream reads the former value.
    """
    stream = torch.Stream(device.this)
    (written,) = buffers(device, 1)
    for number in late_writes(device, stream, written):
        stream.synchronize()
        assert value(written) == number, "synchronize() returned before the stream's work was complete"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::synchronizeDevice", needs=("streams",))
def device_synchronize_waits_for_all_streams(device: Device) -> None:
    """`torch.accelerator.synchronize` waits for streams other than the current one.

    It calls synchronizeDevice, which must wait for each stream of the device, not only for the current stream.
    """
    stream, other = torch.Stream(device.this), torch.Stream(device.this)
    (written,) = buffers(device, 1)
    for number in late_writes(device, stream, written):
        other.wait_stream(stream)
        torch.accelerator.synchronize()
        assert stream.query() and other.query(), "the device's synchronize() left a stream with unfinished work"
        assert value(written) == number, "the device's synchronize() returned before a stream's work was complete"


@check(level=Level.ASYNCHRONOUS, hook="synchronizeDevice", needs=("streams", "several_devices"))
def device_synchronize_waits_for_the_device_asked_for(device: Device) -> None:
    """`torch.accelerator.synchronize(1)` waits for device 1 while device 0 is current.

    synchronizeDevice receives the index; waiting for the current device instead returns too early.
    """
    stream = torch.Stream(device.other)
    (written,) = buffers(device, 1, device.other)
    for number in late_writes(device, stream, written):
        torch.accelerator.synchronize(1)
        assert stream.query() and value(written) == number, "synchronize(1) returned before device 1 was idle"


@check(level=Level.ASYNCHRONOUS, hook="streams of the device", needs=("streams",))
def threads_use_their_own_streams(device: Device) -> None:
    """Four threads, each with a stream of its own, compute what they compute alone.

    The queues and the caches behind them are shared by all threads of the process.
    """

    def work(start: int) -> None:
        with torch.Stream(device.this) as stream:
            x = torch.full((256,), float(start), device=device.this)
            for _ in range(50):
                x = x * 2 - start
            stream.synchronize()
            assert value(x) == start, f"thread {start} got {value(x)}"

    in_threads(*(partial(work, start) for start in range(1, 5)))


@check(level=Level.COMPLETE, hook="Stream, stream, current_stream of the device module", needs=("streams",))
def module_has_streams(device: Device) -> None:
    """The device module offers `Stream`, `stream` and `current_stream`.

    FSDP, distributed checkpoints and Dynamo look them up by name. `Stream` must derive from `torch.Stream`, and
    `stream(None)` must do nothing.
    """
    for name in ("Stream", "stream", "current_stream"):
        if not hasattr(device.module, name):
            missing(f"torch.{device.name} has no attribute {name}")
    stream = device.module.Stream(priority=-1)
    assert isinstance(stream, torch.Stream), "the module's Stream is no torch.Stream"
    assert stream.device.type == device.name
    before = device.module.current_stream()
    assert before.stream_id == torch.accelerator.current_stream().stream_id
    with device.module.stream(stream):
        assert device.module.current_stream() == stream
        assert torch.accelerator.current_stream().stream_id == stream.stream_id
    assert device.module.current_stream() == before
