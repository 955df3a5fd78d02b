"""Random programs: right and silent with all their waits. Without one, the detector reports the pair that has lost its
order; and in the schedule `latest` the access that races comes first, so that numbers differ."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
import torch
from program_numbers import initial_tensors, numbers, numbers_must_differ, order_of_latest
from random_programs import EVENTS, SIDE, STREAMS, Step, broken, first_race, random_program, source_of
from reports import parse

DEVICE = "openreg"


def poll(waited_for: torch.Stream | torch.Event) -> None:
    while not waited_for.query():
        pass


def programs(seeds: range) -> Iterator[tuple[list[Step], list[list[Step]]]]:
    """Programs, each with some that lack one of its waits."""
    races = 0
    for seed in seeds:
        rng = random.Random(seed)
        steps = random_program(rng, rng.randrange(4, 24))
        assert first_race(steps) is None
        without_a_wait = list(itertools.islice(broken(rng, steps), 3))
        races += len(without_a_wait)
        try:
            yield steps, without_a_wait
        except GeneratorExit:
            print(f"seed {seed}")  # the test has failed
            raise
    assert races > len(seeds)


class Runner:
    """Runs programs, one after the other, on the same streams, and returns what `numbers` does."""

    def __init__(self) -> None:
        self.streams = [torch.openreg.default_stream(), *(torch.openreg.Stream() for _ in range(STREAMS - 1))]

    def run(self, steps: list[Step]) -> list[torch.Tensor]:
        tensors = {f"x{i}": tensor.to(DEVICE) for i, tensor in enumerate(initial_tensors())}
        kept: list[torch.Tensor] = []
        events = [torch.openreg.Event() for _ in range(EVENTS)]
        names = {"torch": torch, "s": self.streams, "e": events, "on": torch.openreg.stream, "poll": poll, "kept": kept}
        torch.openreg.synchronize()
        try:
            exec(compile(source_of(steps), "<program>", "exec"), {**names, **tensors})
        finally:
            torch.openreg.synchronize()
        return [*(tensor.cpu() for tensor in tensors.values()), *(tensor.cpu() for tensor in kept)]


def check_report(runner: Runner, steps: list[Step]) -> None:
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


def check_numbers(runner: Runner, steps: list[Step]) -> bool:
    """Of a program that ends when the host has waited for the access that races. Returns whether they must differ."""
    last, _ = first_race(steps)
    steps = steps[: last + 1]
    got = runner.run([*steps, Step("synchronize", other=steps[last].stream)])
    assert equal(got, numbers(steps, order_of_latest(steps)))
    must_differ = numbers_must_differ(steps)
    assert not (must_differ and equal(got, numbers_in_order(steps)))
    return must_differ


def numbers_in_order(steps: list[Step]) -> list[torch.Tensor]:
    return numbers(steps, [i for i, step in enumerate(steps) if step.is_access])


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def check_reports(seeds: range) -> None:
    runner = Runner()
    for steps, without_a_wait in programs(seeds):
        assert equal(runner.run(steps), numbers_in_order(steps))
        for broken_steps in without_a_wait:
            check_report(runner, broken_steps)


def check_numbers_of_all(seeds: range) -> None:
    torch.openreg.set_race_detection_mode("off")
    runner = Runner()
    differ = []
    for steps, without_a_wait in programs(seeds):
        assert equal(runner.run(steps), numbers_in_order(steps))
        differ += [check_numbers(runner, broken_steps) for broken_steps in without_a_wait]
    assert differ.count(True) > len(differ) / 2


@pytest.fixture
def latest() -> Iterator[None]:
    before = torch.openreg.get_schedule()
    torch.openreg.set_schedule("latest")
    yield
    torch.openreg.set_schedule(before)


def test_reports():
    check_reports(range(300))


def test_numbers(latest):
    check_numbers_of_all(range(300))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_reports_of_many_programs():
    check_reports(range(1_000, 11_000))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_numbers_of_many_programs(latest):
    check_numbers_of_all(range(1_000, 11_000))
