"""Repeats: a call is made several times, with other elements in other memory, and equals the CPU's each time.

The device keeps what it made of a command for those that are alike (``cpp/ops/launch/command_cache.h``).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from graphs import Way, check_samples, without_seeds
from outcome import DEVICE, changes_with_seed, compare
from result import Result
from samples import Call, Mover

ROUNDS = 2  # of a sample's sets of elements: the calls run on two threads, each of which keeps its own


def made_on(device: str, op: Any, way: Way, call: Call) -> Any:
    there, other = (Call(*Mover(device)(tuple(call))) for _ in range(2))
    prepared = way.prepare(op, other)
    torch.manual_seed(0)
    return without_seeds(lambda: way.run(op, there, prepared))


def check_calls(op: Any, way: Way, calls: list[Call], result: Result) -> None:
    """Raises AssertionError where a result differs from the CPU's."""
    results = []  # which stay, so that none gets the memory of another one
    for call in calls * ROUNDS:
        try:
            expected = made_on("cpu", op, way, call)
        except Exception:
            return  # other checks look at what is refused
        got = made_on(DEVICE, op, way, call)
        results.append(got)
        compare(op.name, expected, got, partial(changes_with_seed, op, call, expected))
    result.samples += 1


def check_repeats(op: Any, result: Result, samples: int) -> None:
    check_samples(op, result, samples, check_calls)
