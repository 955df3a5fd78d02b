"""Random programs: silent with all their waits; without one, the detector reports the pair that has lost its order."""

from __future__ import annotations

import random

import pytest
import torch
from random_programs import EVENTS, SIDE, STREAMS, TENSORS, Step, broken, first_race, random_program, source_of
from reports import parse

DEVICE = "openreg"


def poll(waited_for: torch.Stream | torch.Event) -> None:
    while not waited_for.query():
        pass


class Runner:
    """Runs programs, one after the other, on the same streams."""

    def __init__(self) -> None:
        self.streams = [torch.openreg.default_stream(), *(torch.openreg.Stream() for _ in range(STREAMS - 1))]

    def run(self, steps: list[Step]) -> None:
        tensors = {f"x{i}": torch.ones(SIDE, SIDE, device=DEVICE) for i in range(TENSORS)}
        events = [torch.openreg.Event() for _ in range(EVENTS)]
        names = {"torch": torch, "s": self.streams, "e": events, "on": torch.openreg.stream, "poll": poll, "kept": []}
        torch.openreg.synchronize()
        try:
            exec(compile(source_of(steps), "<program>", "exec"), {**names, **tensors})
        finally:
            torch.openreg.synchronize()


def check(runner: Runner, seed: int) -> int:
    """A program, and broken ones. Returns how many races there were."""
    rng = random.Random(seed)
    steps = random_program(rng, rng.randrange(4, 24))
    assert first_race(steps) is None
    runner.run(steps)
    races = 0
    for rest in broken(rng, steps):
        check_broken(runner, rest)
        races += 1
        if races == 3:
            break
    return races


def check_broken(runner: Runner, steps: list[Step]) -> None:
    second, racing = first_race(steps)
    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        runner.run(steps)
    report = parse(str(caught.value))
    assert report.second.line == second + 1, f"expected the race at line {second + 1}"
    assert report.first.line in [i + 1 for i in racing], f"expected a race with one of the steps {racing}"
    assert report.first.stream == (0, runner.streams[steps[report.first.line - 1].stream].stream_id)
    check_element(report, steps)


def check_element(report, steps: list[Step]) -> None:
    """The element is one of the second tensor, and no element before it in memory is used by both."""
    first, access = steps[report.first.line - 1], steps[report.second.line - 1]
    index = tuple(int(i) for i in report.element.split(","))
    views = {"writes": [access.writes], "reads": [access.reads]}[report.second.verb]
    others = [v for v in ((first.writes,) if report.first.verb == "wrote" else (first.reads,)) if v is not None]
    for view in (v for v in views if v is not None):
        common = [view.elements & other.elements for other in others if other.tensor == view.tensor]
        bits = [(bit & -bit).bit_length() - 1 - view.tensor * SIDE * SIDE for bit in common if bit]
        assert min(bits) == int(view.numbers[index]), f"the first common element is at {min(bits)}, not at {index}"


def check_all(seeds: range) -> None:
    runner = Runner()
    races = 0
    for seed in seeds:
        try:
            races += check(runner, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}") if hasattr(error, "add_note") else None
            raise
    assert races > len(seeds)


def test_random_programs():
    check_all(range(300))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_many_random_programs():
    check_all(range(1_000, 11_000))
