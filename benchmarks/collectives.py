#!/usr/bin/env python3
"""Times collectives and DDP steps on openreg against those on CPU tensors. Both use Gloo.

    python benchmarks/collectives.py [--rounds 5] [--case REGEX] [--json FILE] [--anyway]

Ranks are processes on this machine, connected by the loopback interface; they share its cores. "Host time" is the time
of the call without the wait. Times are those of rank 0. On a busy machine it does not measure (exit status 3).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import models
import rounds
import torch
import torch.distributed as dist
from rounds import Case
from torch.nn.parallel import DistributedDataParallel

SIZES = {"4 KB": 2**10, "1 MB": 2**18, "64 MB": 2**24}  # numbers of float32
Launch = Callable[[], Any]


def all_reduce(numel: int, device: str) -> Launch:
    tensor = torch.zeros(numel, device=device)
    return lambda: dist.all_reduce(tensor, async_op=True)


def all_gather(numel: int, device: str) -> Launch:
    """`numel` counts the elements of the result."""
    whole = torch.zeros(numel, device=device)
    part = torch.zeros(numel // dist.get_world_size(), device=device)
    return lambda: dist.all_gather_into_tensor(whole, part, async_op=True)


def repeated(device: str, seconds: float, launch: Launch) -> tuple[float, float]:
    """The median seconds of one call with its wait, and of its launch alone. All ranks repeat it equally often."""

    def once() -> tuple[float, float]:
        begin = time.perf_counter()
        work = launch()
        launched = time.perf_counter()
        if work:
            work.wait()
        rounds.synchronize(device)
        return time.perf_counter() - begin, launched - begin

    expected = statistics.median(once()[0] for _ in range(5))
    repeats = [max(rounds.REPEATS, int(seconds / expected))]
    dist.broadcast_object_list(repeats)
    whole, launching = zip(*(once() for _ in range(repeats[0])), strict=True)
    return statistics.median(whole), statistics.median(launching)


def ddp_step(device: str) -> Callable[[], None]:
    model = DistributedDataParallel(models.Transformer().to(device))
    return models.training_step(model, torch.optim.AdamW, torch.randn(16, 64, 128), device)


def results(size: int) -> tuple[str, ...]:
    calls = [f"{call} of {bytes_}, {size} ranks" for call in ("all_reduce", "all_gather") for bytes_ in SIZES]
    launches = [f"all_reduce of {bytes_}, {size} ranks, host time" for bytes_ in SIZES]
    return (*calls, *launches, f"DDP, Transformer, AdamW, {size} ranks")


def measure_in_rank(
    rank: int, size: int, device: str, seconds: float, store: str, queue: SimpleQueue[list[float]]
) -> None:
    torch.set_num_threads(max(1, rounds.cores() // size))
    dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=size)
    reduced = [repeated(device, seconds, all_reduce(numel, device)) for numel in SIZES.values()]
    gathered = [repeated(device, seconds, all_gather(numel, device)) for numel in SIZES.values()]
    step = repeated(device, seconds, ddp_step(device))
    if rank == 0:
        queue.put([*(whole for whole, _ in reduced + gathered), *(launching for _, launching in reduced), step[0]])
    dist.destroy_process_group()


def measure(size: int) -> Callable[[str, float], list[float]]:
    def in_ranks(device: str, seconds: float) -> list[float]:
        queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            arguments = (size, device, seconds, str(Path(folder, "store")), queue)
            torch.multiprocessing.spawn(measure_in_rank, arguments, size)
        return list(queue.get())

    return in_ranks


def groups() -> rounds.Groups:
    return {f"{size} ranks": [Case(results(size), measure(size))] for size in (2, 4)}


def main() -> int:
    options = rounds.parser(__doc__).parse_args()
    report = rounds.run(groups(), options)
    return 0 if report or options.measure else 3


if __name__ == "__main__":
    sys.exit(main())
