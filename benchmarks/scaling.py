#!/usr/bin/env python3
"""Checks that the cost of an item does not grow with the number of items.

    python benchmarks/scaling.py [--case REGEX] [--largest N] [--against cpu]

For each case the number of items grows by factors of ten: tensors of a command, live blocks, streams, events, shapes,
nodes of a graph, pinned blocks, the depth of autograd. The exit status is 1 if an item of the largest number costs more
than twice as much as one of the number that is cheapest. Times are the least of several runs, of the process and not of
the clock, so other work on the machine disturbs them little. `--against cpu` shows beside each time its ratio to the
CPU backend's, where that has such items.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rounds import synchronize

Work = Callable[[], object]
GROWTH = 2.0


@dataclass(frozen=True)
class Case:
    """`prepare(device, n)` returns work on n items, which is timed with a wait at its end."""

    prepare: Callable[[str, int], Work]
    largest: int
    on_cpu: bool = True


def small_tensors(device: str, n: int) -> list[torch.Tensor]:
    return [torch.ones(8, device=device) for _ in range(n)]


def over_tensors(function: Callable[[list[torch.Tensor]], object]) -> Callable[[str, int], Work]:
    return lambda device, n: partial(function, small_tensors(device, n))


def fused_optimizer(device: str, n: int) -> Work:
    parameters = [torch.nn.Parameter(tensor) for tensor in small_tensors(device, n)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.AdamW(parameters, fused=True).step


def live_blocks(device: str, n: int) -> Work:
    """Allocations and frees of as many blocks, in another order, beside as many that stay."""
    kept = [torch.empty(64, device=device) for _ in range(n)]

    def work() -> None:
        assert kept
        blocks = [torch.empty(64 + 64 * (i % 7), device=device) for i in range(n)]
        del blocks[::2]
        del blocks[::-1]

    return work


def streams(device: str, n: int) -> Work:
    made = [torch.Stream(device=device) for _ in range(n)]
    x = torch.ones(8, device=device)

    def work() -> None:
        for stream in made:
            with stream:
                x + x

    return work


def events(device: str, n: int) -> Work:
    """A chain: each stream waits for the event that the other one has recorded."""
    a, b = torch.Stream(device=device), torch.Stream(device=device)

    def work() -> None:
        for _ in range(n // 2):
            b.wait_event(a.record_event())
            a.wait_event(b.record_event())

    return work


def shapes(device: str, n: int) -> Work:
    """Each for the second time; PlanCache::kMost plans are kept."""
    # In base 3, so that all of them have few elements.
    tensors = [torch.ones([1 + i // 3**digit % 3 for digit in range(9)], device=device) for i in range(n)]

    def work() -> None:
        for tensor in tensors:
            tensor + tensor

    work()
    return work


def graph_nodes(device: str, n: int) -> Work:
    x = torch.ones(8, device=device)
    graph = torch.openreg.CUDAGraph()
    x.add_(1)
    torch.accelerator.synchronize()
    with torch.openreg.graph(graph):
        for _ in range(n):
            x.add_(1)
    return graph.replay


def queue(device: str, n: int) -> Work:
    """Commands that the host launches one after another, and waits for at the end."""
    x = torch.ones(8, device=device)

    def work() -> None:
        for _ in range(n):
            x.add_(1)

    return work


def pinned_blocks(device: str, n: int) -> Work:
    kept = [torch.empty(64, pin_memory=True) for _ in range(n)]
    targets = [torch.empty(64, device=device) for _ in range(16)]

    def work() -> None:
        for i, block in enumerate(kept):
            targets[i % 16].copy_(block, non_blocking=True)

    return work


def depth_of_autograd(device: str, n: int) -> Work:
    x = torch.ones(8, device=device, requires_grad=True)

    def work() -> None:
        y = x
        for _ in range(n):
            y = y + 1
        y.sum().backward()

    return work


def uses_by_other_streams(device: str, n: int) -> Work:
    stream = torch.Stream(device=device)

    def work() -> None:
        for tensor in small_tensors(device, n):
            tensor.record_stream(stream)

    return work


CASES = {
    "cat of tensors of 8": Case(over_tensors(torch.cat), 10_000),
    "stack of tensors of 8": Case(over_tensors(torch.stack), 10_000),
    "_foreach_add_ of tensors of 8": Case(over_tensors(lambda tensors: torch._foreach_add_(tensors, 1.0)), 1000),
    "fused AdamW, parameters of 8": Case(fused_optimizer, 1000),
    "live blocks": Case(live_blocks, 100_000),
    "streams": Case(streams, 1000, on_cpu=False),
    "events in a chain": Case(events, 10_000, on_cpu=False),
    "shapes, known": Case(shapes, 10_000),
    "nodes of a graph": Case(graph_nodes, 1000, on_cpu=False),  # more of them do not fit in the cache
    "commands in a queue": Case(queue, 10_000),
    "pinned blocks": Case(pinned_blocks, 10_000, on_cpu=False),
    "depth of autograd": Case(depth_of_autograd, 10_000),
    "uses by another stream": Case(uses_by_other_streams, 10_000, on_cpu=False),
}


def cost_of_item(case: Case, device: str, n: int) -> float:
    """Seconds of all threads for one item."""
    work = case.prepare(device, n)
    least = float("inf")
    for run in range(7):
        synchronize(device)
        begin = time.process_time()
        repeats = max(1, 200 // n)
        for _ in range(repeats):
            work()
        synchronize(device)
        if run >= 2:  # the first ones fill caches
            least = min(least, (time.process_time() - begin) / (n * repeats))
    return least


def main() -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only those whose name matches this regular expression")
    parser.add_argument("--largest", type=int, default=10**9, help="number of items, at most")
    parser.add_argument("--against", choices=["cpu"], help="shows the ratio to this device")
    options = parser.parse_args()
    torch.set_num_threads(1)  # spinning threads would count
    growing = []
    for name, case in CASES.items():
        if not re.search(options.case, name):
            continue
        counts = [n for n in (10, 100, 1000, 10_000, 100_000) if n <= min(case.largest, options.largest)]
        gc.collect()
        gc.disable()  # its passes cost more the more objects there are
        costs = [cost_of_item(case, "openreg", n) for n in counts]
        others = [cost_of_item(case, "cpu", n) for n in counts] if options.against and case.on_cpu else None
        gc.enable()
        cells = [f"{n}: {cost * 1e6:.2f}" for n, cost in zip(counts, costs, strict=True)]
        if others:
            cells = [f"{cell} ({a / b:.2f})" for cell, a, b in zip(cells, costs, others, strict=True)]
        growth = costs[-1] / min(costs)
        print(f"{name}, us each: {', '.join(cells)}; growth {growth:.1f}", flush=True)
        if growth > GROWTH:
            growing.append(name)
    for name in growing:
        print(f"the cost of an item grows: {name}", file=sys.stderr)
    return 1 if growing else 0


if __name__ == "__main__":
    sys.exit(main())
