"""Compiled programs on two devices that switch streams: values and gradients, also where streams are behind."""

from __future__ import annotations

import random

import busy_streams
import pytest
import torch
from busy_streams import Program, Streams
from torch.testing import assert_close

N = 8
DEVICES = (0, 1)


def current(device: int) -> torch.Stream:
    return torch.openreg.current_stream(device)


def there_and_back(x: torch.Tensor, w: torch.Tensor, streams: Streams) -> torch.Tensor:
    """Both gradients of `w` are added on device 0, one of them from a stream of device 1."""
    streams[0].wait_stream(current(0))
    with streams[0]:
        y = (x @ w).sin()
    current(0).wait_stream(streams[0])
    z = y.to("openreg:1", non_blocking=True)
    streams[1].wait_stream(current(1))
    with streams[1]:
        z = (z @ w.to("openreg:1")).cos()
    current(1).wait_stream(streams[1])
    return z.to("openreg:0").tanh()


def from_stream_to_stream(x: torch.Tensor, w: torch.Tensor, streams: Streams) -> torch.Tensor:
    streams[0].wait_stream(current(0))
    with streams[0]:
        y = (x @ w).sin()
        written = streams[0].record_event()
    streams[1].wait_stream(current(1))
    current(0).wait_event(written)
    with streams[1]:
        z = y.to("openreg:1", non_blocking=True).cos()
    for device in DEVICES:
        current(device).wait_stream(streams[0])
        current(device).wait_stream(streams[1])
    return z.to("openreg:0").tanh() + y


def of_the_other_device(x: torch.Tensor, w: torch.Tensor, streams: Streams) -> torch.Tensor:
    """While a stream of device 1 is current there, device 0 has its own."""
    streams[1].wait_stream(current(1))
    with streams[1]:
        y = (x @ w).sin()
        z = y.to("openreg:1") * 2
    current(1).wait_stream(streams[1])
    return z.to("openreg:0") + y.cos()


def at_random(seed: int) -> Program:
    """A program of correct order: each operation waits for the streams that its operands come from."""
    drawn = random.Random(seed)
    steps = [
        (drawn.choice(("sin", "add", "matmul", "move", "move")), drawn.randrange(4), drawn.random(), drawn.random())
        for _ in range(drawn.randrange(5, 10))
    ]

    def program(x: torch.Tensor, w: torch.Tensor, streams: Streams) -> torch.Tensor:
        values = [(x, 0), (w, 0)]  # with their devices
        for kind, number, first, second in steps:
            a, device = values[int(first * len(values))]
            there = [value for value, place in values if place == device]
            b = there[int(second * len(there))]
            # Streams: those of the call, and one more of each device.
            available = [*streams, current(0), current(1)]
            stream, of_device = available[number], number % 2
            for other in available:
                for each in DEVICES:
                    if other is not available[2 + each]:
                        available[2 + each].wait_stream(other)
            if number < 2:
                stream.wait_stream(available[2 + of_device])
            with stream:
                if kind == "move":
                    values.append((a.to(f"openreg:{1 - device}"), 1 - device))
                else:
                    result = {"sin": lambda a, b: a.sin(), "add": torch.add, "matmul": torch.matmul}[kind](a, b)
                    values.append((result.tanh(), device))
        for each in DEVICES:
            for stream in streams:
                current(each).wait_stream(stream)
        return sum((value.to("openreg:0") for value, _ in values[2:]), start=x * 2 + w)

    return program


def train(program: Program, busy: str = "", devices: tuple[int, int] = DEVICES) -> list[torch.Tensor]:
    x = torch.linspace(-2, 2, N * N).view(N, N)
    w = torch.linspace(-1, 1.5, N * N).view(N, N)
    side = [torch.openreg.Stream(device) for device in devices]
    return busy_streams.train(program, x, w, side, busy, DEVICES)


@pytest.mark.parametrize("program", [there_and_back, from_stream_to_stream, of_the_other_device])
def test_a_program_computes_what_eager_mode_does(program):
    expected = train(program)
    compiled = torch.compile(program, fullgraph=True)
    for busy in ("", "current", "side"):
        assert_close(train(compiled, busy), expected, rtol=1e-4, atol=1e-4)


def test_a_stream_of_another_device_takes_the_place_of_one():
    """The streams of a later call are of the other device: what a program waits for is decided when it runs."""
    expected = train(of_the_other_device)
    compiled = torch.compile(of_the_other_device, fullgraph=True)
    for devices in ((0, 1), (0, 0), (1, 0), (1, 1)):
        for busy in ("", "current", "side"):
            assert_close(train(compiled, busy, devices), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.full) for n in range(4, 60))])
def test_random_programs_compute_what_eager_mode_does(seed):
    program = at_random(seed)
    expected = train(program)
    compiled = torch.compile(program, fullgraph=True)
    for busy in ("", "current", "side"):
        assert_close(train(compiled, busy), expected, rtol=1e-3, atol=1e-3)
