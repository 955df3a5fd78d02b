#!/usr/bin/env python3
"""Times programs compiled by Inductor, on openreg against the CPU, in separate processes.

    python benchmarks/compiled.py [--rounds 5] [--case REGEX] [--json FILE] [--anyway]

The target is a ratio of at most 1.05 for programs, and of 1.1 for compiling. If a case misses it, the exit status is 1.
On a busy machine it does not measure (exit status 3). Compilation is timed with an empty cache of programs, but after
a first program, for which Inductor prepares its headers and starts its processes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable

import models
import rounds
import torch
from rounds import Case, Step, steady, synchronize
from torch import nn

TARGET, TARGET_OF_COMPILING = 1.05, 1.1
COMPILING = "compiling"

Make = Callable[[], nn.Module]


def block() -> nn.Module:
    """An encoder layer without dropout."""
    return nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)


def fused(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2 + x).softmax(-1)


def function(device: str, *shape: int) -> Step:
    run, x = torch.compile(fused), torch.randn(*shape).to(device)
    return lambda: run(x)


def inference(make: Make, x: torch.Tensor, device: str) -> Step:
    run, inputs = torch.compile(make().to(device).eval()), x.to(device)

    def step() -> None:
        with torch.no_grad():
            run(inputs)

    return step


def training(make: Make, x: torch.Tensor, device: str) -> Step:
    model = torch.compile(make())
    return models.training_step(model, torch.optim.SGD, x, device, lr=0.01, momentum=0.9)


def training_with_compiled_optimizer(make: Make, x: torch.Tensor, device: str) -> Step:
    model = torch.compile(make()).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    update = torch.compile(optimizer.step)
    loss_function, inputs, labels = nn.CrossEntropyLoss(), x.to(device), models.labels_for(x).to(device)

    def step() -> None:
        optimizer.zero_grad()
        loss_function(model(inputs), labels).backward()
        update()

    return step


def compiling(name: str, make: Callable[[str], Step]) -> Case:
    """Times the first step, with an empty cache."""

    def measure(device: str, _seconds: float) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            function(device, 3, 5)()
            step = make(device)
            begin = time.perf_counter()
            step()
            synchronize(device)
            return [time.perf_counter() - begin]

    return Case((name,), measure)


def groups() -> rounds.Groups:
    vectors, images, sequences = torch.randn(32, 64), torch.randn(32, 3, 32, 32), torch.randn(16, 64, 128)
    return {
        "functions": [
            steady("fused softmax of 16x16", lambda device: function(device, 16, 16), 100),
            steady("fused softmax of 4096x1024", lambda device: function(device, 4096, 1024)),
        ],
        "inference": [
            steady("MLP, batch 32, inference", lambda device: inference(models.mlp, vectors, device), 20),
            steady("CNN, batch 32, inference", lambda device: inference(models.cnn, images, device)),
            steady("transformer layer, inference", lambda device: inference(block, sequences, device)),
        ],
        "training": [
            steady("MLP, batch 32, SGD", lambda device: training(models.mlp, vectors, device), 5),
            steady("CNN, batch 32, SGD", lambda device: training(models.cnn, images, device)),
            steady("transformer, 2 layers, SGD", lambda device: training(models.Transformer, sequences, device)),
        ],
        "compiled optimizer": [
            steady("MLP, AdamW", lambda device: training_with_compiled_optimizer(models.mlp, vectors, device), 5),
        ],
        COMPILING: [
            compiling("compiling the CNN's step", lambda device: training(models.cnn, images, device)),
        ],
    }


def main() -> int:
    options = rounds.parser(__doc__).parse_args()
    report = rounds.run(groups(), options)
    if options.measure:
        return 0
    if not report:
        return 3
    results = report["cases"].values()
    return int(any(each["ratio"] > (TARGET_OF_COMPILING if each["group"] == COMPILING else TARGET) for each in results))


if __name__ == "__main__":
    sys.exit(main())
