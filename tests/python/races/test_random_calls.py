"""Random programs with calls that are given more than they use (`random_calls.py`): modules in evaluation, backward
passes beside forward passes, offloading. With all their waits they are silent and right; without one, each report
names two unsynchronized accesses.

In the default suite 150 programs, in seconds; with the mark `full` 20,000.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from program_numbers import initial_tensors
from random_calls import RandomCalls, names_of_calls
from random_programs import EVENTS, STREAMS, Order, Step, broken, random_program, source_of, unordered
from reports import parse

DEVICE = "openreg"


def poll(waited_for: torch.Stream | torch.Event) -> None:
    while not waited_for.query():
        pass


class Runner:
    """Runs programs, one after the other, on the same streams."""

    def __init__(self) -> None:
        self.streams = [torch.openreg.default_stream(), *(torch.openreg.Stream() for _ in range(STREAMS - 1))]

    def run(self, steps: list[Step]) -> list[torch.Tensor]:
        """The tensors at the end, and what the steps have kept."""
        events = [torch.openreg.Event() for _ in range(EVENTS)]
        names = {"s": self.streams, "e": events, "on": torch.openreg.stream, "poll": poll}
        tensors = tensors_of_programs(DEVICE)
        torch.openreg.synchronize()
        try:
            return execute(source_of(steps), {**names, **tensors}, torch.openreg.synchronize)
        finally:
            torch.openreg.synchronize()


def tensors_of_programs(device: str) -> dict[str, Any]:
    return {**names_of_calls(device), **{f"x{i}": tensor.to(device) for i, tensor in enumerate(initial_tensors())}}


def execute(source: str, names: dict[str, Any], synchronize: Any) -> list[torch.Tensor]:
    kept: list[torch.Tensor] = []
    exec(compile(source, "<program>", "exec"), {"torch": torch, "kept": kept, **names})
    synchronize()
    tensors = [value for value in names.values() if isinstance(value, torch.Tensor)]
    return [tensor.detach().cpu() for tensor in (*tensors, *kept) if tensor is not None]


def on_cpu(steps: list[Step]) -> list[torch.Tensor]:
    source = "\n".join(step.statement for step in steps if step.is_access)
    return execute(source, tensors_of_programs("cpu"), lambda: None)


def racing_with(steps: list[Step], number: int) -> list[int]:
    """The accesses with which that one lacks an order."""
    order = Order()
    for i, step in enumerate(steps[:number]):
        order.run(step, i)
    return unordered(steps, number, order.before_access(steps[number]))


def check_silent(runner: Runner, steps: list[Step]) -> None:
    got, expected = runner.run(steps), on_cpu(steps)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def is_reported(runner: Runner, steps: list[Step]) -> bool:
    """Whether there is a report. Fails if it names accesses that have an order, or need none."""
    try:
        runner.run(steps)
    except torch.openreg.UnsynchronizedAccessError as error:
        report = parse(str(error))
        assert report.first.line - 1 in racing_with(steps, report.second.line - 1), f"{error}\n{source_of(steps)}"
        return True
    return False


def check_programs(seeds: range) -> None:
    runner = Runner()
    reported = []
    for seed in seeds:
        rng = random.Random(seed)
        steps = random_program(rng, rng.randrange(4, 30), RandomCalls())
        try:
            check_silent(runner, steps)
            # What happens to pinned memory is seen later, at the host's access.
            if not any(step.kind == "pinned" for step in steps):
                reported += [is_reported(runner, each) for each in itertools.islice(broken(rng, steps), 2)]
        except BaseException:
            print(f"seed {seed}:\n{source_of(steps)}")
            raise
    # Not all: which elements some calls use depends on values.
    assert reported.count(True) > 0.5 * len(reported) > 0.1 * len(seeds)


def test_programs():
    check_programs(range(150))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_programs():
    check_programs(range(1_000, 21_000))
