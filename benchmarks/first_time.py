"""The cost of new shapes: the time of their first and second use in a process.

Each case has a separate process in each round. Before the first pass the process uses one other shape, so that one-time
work of libraries (threads, tables, the first call of an operator) is not counted, but work for each shape is. A pass
ends with a wait, and its time is divided by the number of shapes in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from models import Decoder, Transformer, cnn, labels_for, trainer
from rounds import Case, Groups, synchronize

BATCH = 8
Sample = tuple[torch.Tensor, torch.Tensor]


def passes(
    device: str, step: Callable[[Sample], None], warm_up: torch.Tensor, inputs: list[torch.Tensor]
) -> list[float]:
    """The seconds for a sample in the first pass and in the second."""

    def on_device(x: torch.Tensor) -> Sample:
        return x.to(device), labels_for(x).to(device)

    step(on_device(warm_up))
    samples = [on_device(x) for x in inputs]
    synchronize(device)
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        for sample in samples:
            step(sample)
        synchronize(device)
        times.append((time.perf_counter() - begin) / len(samples))
    return times


def images(device: str, _seconds: float) -> list[float]:
    train = trainer(cnn(), torch.optim.SGD, device, lr=0.01)
    sizes: Sequence[int] = range(24, 64)
    inputs = [torch.randn(BATCH, 3, size, size) for size in sizes]
    return passes(device, lambda sample: train(*sample), torch.randn(BATCH, 3, 80, 80), inputs)


def sequences(device: str, _seconds: float) -> list[float]:
    train = trainer(Transformer(), torch.optim.AdamW, device)
    inputs = [torch.randn(BATCH, length, 128) for length in range(5, 65)]
    return passes(device, lambda sample: train(*sample), torch.randn(BATCH, 80, 128), inputs)


def generation(device: str, _seconds: float) -> list[float]:
    model = Decoder().to(device)
    model.generate(1, before=300)
    begin = time.perf_counter()
    model.generate(200)
    return [(time.perf_counter() - begin)]


def groups() -> Groups:
    """One case in each group, so that each case has a separate process."""
    return {
        "new image sizes": [Case(("40 image sizes, first time", "40 image sizes, second time"), images)],
        "new lengths": [Case(("60 lengths, first time", "60 lengths, second time"), sequences)],
        "new tokens": [Case(("200 tokens, first time",), generation)],
    }
