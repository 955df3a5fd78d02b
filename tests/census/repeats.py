"""Repeats: a call is made several times, with other elements in other memory, and equals the CPU's each time.

The device keeps what it made of a command for those that are alike (``cpp/ops/launch/kept_commands.h``).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from graphs import Way, variants, ways_of, without_seeds
from outcome import DEVICE, changes_with_seed, clear_errors, compare
from result import Result, failure
from samples import Call, Mover, detached

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
    dtype = getattr(torch, result.dtype)
    for way, gradients in ways_of(op, dtype):
        try:
            found = list(variants(op, dtype, gradients, samples))
        except Exception as error:  # what the CPU cannot do is not ours to judge
            result.status, result.details = "cpu", [f"no samples: {failure(error)}"]
            return
        for number, calls in enumerate(found):
            try:
                changed = [way.change(call if gradients else detached(call)) for call in calls]
                check_calls(op, way, changed, result)
            except Exception as error:
                result.unequal(f"[{way.name}] sample {number}: {failure(error)}")
                clear_errors()
