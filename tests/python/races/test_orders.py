"""Which orders count, and what a command uses: what the tests of PyTorch's CUDA sanitizer check, on this device.

Streams have numbers here, and each test begins with nothing that is not ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from reports import Report, parse

DEVICE = "openreg"


class Machine:
    """Streams and tensors by number, and commands that read or write them."""

    def __init__(self) -> None:
        self.streams = [torch.openreg.Stream() for _ in range(12)]
        self.tensors = [torch.ones(4, device=DEVICE) for _ in range(12)]
        torch.accelerator.synchronize()

    def read(self, stream: int, tensor: int) -> None:
        with torch.openreg.stream(self.streams[stream]):
            torch.add(self.tensors[tensor], 1)

    def write(self, stream: int, *tensors: int) -> None:
        with torch.openreg.stream(self.streams[stream]):
            torch._foreach_add_([self.tensors[i] for i in tensors], 1.0)

    def record(self, stream: int) -> torch.Event:
        return self.streams[stream].record_event()

    def wait(self, stream: int, events: Iterable[torch.Event]) -> None:
        for event in events:
            self.streams[stream].wait_event(event)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def race_of(call: Callable[..., object], *arguments: object) -> Report:
    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        call(*arguments)
    return parse(str(caught.value))


def test_a_command_without_memory_is_silent(machine):
    with torch.openreg.stream(machine.streams[0]):
        torch.openreg._sleep(1)
        torch.empty(0, device=DEVICE).zero_()


def test_each_read_is_compared_with_the_last_write(machine):
    machine.write(1, 1)
    machine.wait(2, [machine.record(1)])
    machine.read(2, 1)
    report = race_of(machine.read, 3, 1)
    assert (report.first.verb, report.second.verb) == ("wrote", "reads")
    assert report.first.stream == (0, machine.streams[1].stream_id)


def test_two_streams_may_read_what_both_waited_for_but_not_write(machine):
    machine.write(1, 1)
    event = machine.record(1)
    machine.wait(2, [event])
    machine.wait(3, [event])
    machine.read(2, 1)
    machine.read(3, 1)
    report = race_of(machine.write, 2, 1)
    assert report.first.verb == "read" and report.first.stream == (0, machine.streams[3].stream_id)


@pytest.mark.parametrize("waits", [9, 8])
def test_a_write_is_compared_with_all_reads(machine, waits):
    events = []
    for stream in range(1, 10):
        machine.read(stream, 1)
        events.append(machine.record(stream))
    machine.wait(0, events[:waits])
    if waits == 9:
        machine.write(0, 1)
    else:
        report = race_of(machine.write, 0, 1)
        assert report.first.stream == (0, machine.streams[9].stream_id)


def test_one_command_raises_its_first_race(machine):
    """The CUDA sanitizer reports all ten; here the call ends with the first, since it is not submitted."""
    machine.write(0, *range(10))
    report = race_of(machine.write, 1, *range(10))
    assert (report.first.op, report.second.op) == ("aten::_foreach_add_.Scalar",) * 2


def test_a_wait_adds_to_what_is_known(machine):
    machine.write(1, 1)
    machine.write(2, 2)
    first, second = machine.record(1), machine.record(2)
    machine.write(1, 1)
    machine.write(2, 2)
    machine.wait(2, [first])
    machine.wait(1, [second])
    machine.wait(1, [machine.record(2)])
    machine.write(1, 1, 2)


def test_an_event_that_is_recorded_again_stands_for_the_new_record(machine):
    machine.read(1, 1)
    machine.read(2, 2)
    event = machine.record(1)
    event.record(machine.streams[2])
    machine.wait(3, [event])
    race_of(machine.write, 3, 1)
    machine.write(3, 2)


def test_a_new_stream_knows_what_the_host_has_waited_for(machine):
    machine.write(1, 1)
    torch.accelerator.synchronize()
    with torch.openreg.stream(torch.openreg.Stream()):
        machine.tensors[1].add_(1)


def test_the_host_waits_for_one_stream_only(machine):
    machine.write(1, 1)
    machine.write(2, 2)
    machine.streams[1].synchronize()
    machine.write(3, 1)
    race_of(machine.write, 3, 2)


def test_the_host_waits_for_one_event_only(machine):
    machine.write(1, 1)
    event = machine.record(1)
    machine.write(1, 2)
    event.synchronize()
    machine.write(3, 1)
    race_of(machine.write, 3, 2)


# What a command reads and writes, and what it calls it. `launch` uses `x` on another stream.

ROLES = [
    (lambda x, y: x + y, "reads", "self"),
    (lambda x, y: torch.sub(y, x), "reads", "other"),
    (lambda x, y: torch.cat([y, x]), "reads", None),
    (lambda x, y: x.split(2)[1] + 1, "reads", "self"),
    (lambda x, y: x.add_(5), "writes", "self"),
    (lambda x, y: torch.mul(y, 3, out=x), "writes", None),
    (lambda x, y: torch.nonzero(x, as_tuple=True), "reads", "self"),
    (lambda x, y: torch.addcmul(y, y.clone(), x), "reads", "tensor2"),
    (lambda x, y: torch.addr(torch.ones(4, 4, device=DEVICE), y, x), "reads", None),
]


@pytest.mark.parametrize(("launch", "verb", "argument"), ROLES)
def test_what_an_operator_does_with_its_argument(launch, verb, argument):
    x, y = torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)
    torch.accelerator.synchronize()
    x.add_(1)
    with torch.openreg.stream(torch.openreg.Stream()):
        report = race_of(launch, x, y)
    assert report.second.verb == verb
    if argument is not None:
        assert report.second.argument == argument


@pytest.mark.parametrize("launch", [launch for launch, verb, _ in ROLES if verb == "reads"])
def test_what_an_operator_reads_others_may_read(launch):
    x, y = torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)
    torch.accelerator.synchronize()
    x + 1
    with torch.openreg.stream(torch.openreg.Stream()):
        launch(x, y)
