"""Measures the programs of team_policy.py: host times and work of their operators, on the CPU with one thread."""

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
LEAST_WORK = 0.5


class Recorder(TorchDispatchMode):
    """Of each operator that would be a command: the time since the one before, and its own (microseconds)."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[tuple[float, float]] = []
        self.last = time.perf_counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        end = time.perf_counter()
        # Views and reserved memory are not commands: what they take is the host's time, before the next one.
        if not func.is_view and "empty" not in func.__name__ and "detach" not in func.__name__:
            self.commands.append(((begin - self.last) * 1e6, (end - begin) * 1e6))
            self.last = time.perf_counter()
        return result


def record_step(step: Callable[[], None], steps: int) -> Program:
    """Each operator's least times of several rounds.

    Recording makes the time between operators longer, in proportion to their number; it is scaled so that, with the
    work, it adds up to what the step takes when nobody records.
    """
    plain, recorded = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        step()
        plain.append((time.perf_counter() - begin) * 1e6)
    for _ in range(ROUNDS):
        with Recorder() as recorder:
            step()
        recorded.append(recorder.commands)
    count = statistics.mode(len(each) for each in recorded)
    rows = list(zip(*(each for each in recorded if len(each) == count), strict=True))
    host = [min(gap for gap, _ in row) for row in rows]
    work = [min(own for _, own in row) for row in rows]
    scale = max(0.1, (min(plain) - sum(work)) / sum(host))
    commands = [(0, round(gap * scale, 1), round(max(own, LEAST_WORK), 1)) for gap, own in zip(host, work, strict=True)]
    return {"steps": steps, "python": 0.0, "commands": commands}


def product_work(n: int) -> float:
    a, b = torch.randn(n, n), torch.randn(n, n)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        times.append((time.perf_counter() - begin) * 1e6)
    return round(min(times), 1)


def record() -> dict[str, Program]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    large, small = product_work(2048), product_work(512)
    return {
        "MLP, batch 32, 10 steps": record_step(models.mlp_step("cpu"), 10),
        "MLP, batch 256 AdamW, 5 steps": record_step(models.mlp_adamw_step("cpu"), 5),
        "CNN, batch 32, 2 steps": record_step(models.cnn_step("cpu"), 2),
        "transformer, 2 layers, 1 step": record_step(models.transformer_step("cpu"), 1),
        "product of 2048, 5 ms of Python": {"steps": 1, "python": 5000.0, "commands": [(0, 3.0, large)]},
        "product of 2048, 20 ms of Python": {"steps": 1, "python": 20000.0, "commands": [(0, 3.0, large)]},
        "8 streams, products of 512": {
            "steps": 20,
            "python": 0.0,
            "commands": [(stream, 3.0, small) for stream in range(8)],
        },
    }
