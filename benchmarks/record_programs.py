"""Measures the programs of team_policy.py: host times and work of their operators, on the CPU with one thread.

All times are the thread's processor time, which depends little on other processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import models
import torch
from team_policy import Program
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDS = 30
LEAST = 0.3


class Recorder(TorchDispatchMode):
    """For each operator that would be a command: the time since the previous one, its own time, and the number
    of other operators in between."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.commands: list[tuple[float, float, int]] = []
        self.others = 0
        self.last = time.thread_time()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        begin = time.thread_time()
        result = func(*args, **(kwargs or {}))
        end = time.thread_time()
        # Views and allocations are not commands: their time is host time before the next command.
        if func.is_view or "empty" in func.__name__ or "detach" in func.__name__:
            self.others += 1
        else:
            self.commands.append(((begin - self.last) * 1e6, (end - begin) * 1e6, self.others))
            self.others = 0
            self.last = time.thread_time()
        return result


def recording_costs() -> tuple[float, float]:
    """What recording adds to the time before an operator and to its own time (microseconds)."""
    x = torch.ones(1)
    with Recorder() as recorder:
        for _ in range(2000):
            x + x
    times = []
    for _ in range(2000):
        begin = time.thread_time()
        x + x
        times.append((time.thread_time() - begin) * 1e6)
    before, own = (statistics.median(row[column] for row in recorder.commands) for column in (0, 1))
    return before, max(0.0, own - statistics.median(times))


def least_time(step: Callable[[], object], rounds: int = ROUNDS) -> float:
    times: list[float] = []
    for _ in range(rounds):
        begin = time.thread_time()
        step()
        times.append((time.thread_time() - begin) * 1e6)
    return min(times)


def record_step(step: Callable[[], None], steps: int) -> Program:
    """The minimum times of each operator over several rounds, minus the cost of recording."""
    for _ in range(3):
        step()
    rounds = []
    for _ in range(ROUNDS):
        with Recorder() as recorder:
            step()
        rounds.append(recorder.commands)
    cost_before, cost_own = recording_costs()
    commands = []
    for row in zip(*rounds, strict=True):
        others = row[0][2]
        before = min(each[0] for each in row) - cost_before - others * (cost_before + cost_own)
        own = min(each[1] for each in row) - cost_own
        commands.append((0, max(before, LEAST), max(own, LEAST)))
    return {"steps": steps, "python": 0.0, "commands": commands}


def host_scale(step: Callable[[], None], program: Program) -> float:
    """A correction factor for host times, which are too long: autograd's calls cost more to record than Python's.

    It is computed from a step with little work, for which the time of the unrecorded step minus its work is accurate.
    """
    host = sum(before for _, before, _ in program["commands"])
    work = sum(own for _, _, own in program["commands"])
    return max(0.1, min(1.0, (least_time(step, 200) - work) / host))


def scaled(program: Program, scale: float) -> Program:
    commands = [(stream, round(host * scale, 1), round(work, 1)) for stream, host, work in program["commands"]]
    return {**program, "commands": commands}


def product_work(n: int) -> float:
    a, b = torch.randn(n, n), torch.randn(n, n)
    return round(least_time(lambda: a @ b), 1)


def record() -> dict[str, Program]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    large, small = product_work(2048), product_work(512)
    small_step = models.mlp_step("cpu")
    small_program = record_step(small_step, 10)
    scale = host_scale(small_step, small_program)
    return {
        "MLP, batch 32, 10 steps": scaled(small_program, scale),
        "MLP, batch 256, AdamW, 5 steps": scaled(record_step(models.mlp_adamw_step("cpu"), 5), scale),
        "CNN, batch 32, 2 steps": scaled(record_step(models.cnn_step("cpu"), 2), scale),
        "transformer, 2 layers, 1 step": scaled(record_step(models.transformer_step("cpu"), 1), scale),
        "product of 2048, 5 ms of Python": {"steps": 1, "python": 5000.0, "commands": [(0, 3.0, large)]},
        "product of 2048, 20 ms of Python": {"steps": 1, "python": 20000.0, "commands": [(0, 3.0, large)]},
        "8 streams, products of 512": {
            "steps": 20,
            "python": 0.0,
            "commands": [(stream, 3.0, small) for stream in range(8)],
        },
    }
