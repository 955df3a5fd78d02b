#!/usr/bin/env python3
"""Times openreg against PyTorch's CPU backend: each in a process of its own, in turn, several rounds.

    python benchmarks/compare.py [--rounds 5] [--only REGEX] [--json FILE] [--anyway]

Two OpenMP teams in one process disturb each other, so one process never times both devices. For each case it prints the
medians over the rounds, their spread, and the ratio openreg / CPU of the medians: below 1 openreg is faster. On a
machine that is busy with something else it refuses to judge (exit status 3).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS_PER_CASE = 0.4
REPEATS = 5


def cases(device: str) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name to (what is timed, calls between two synchronises)."""
    import torch
    from torch import nn

    def add_chain(numel: int) -> Callable[[], Any]:
        a, b = torch.ones(numel, device=device), torch.ones(numel, device=device)

        def step() -> None:
            c = a
            for _ in range(10):
                c = c + b

        return step

    def product(n: int) -> Callable[[], Any]:
        a, b = torch.randn(n, n).to(device), torch.randn(n, n).to(device)
        return lambda: a @ b

    def softmax() -> Callable[[], Any]:
        x = torch.randn(512, 1000).to(device)
        return lambda: torch.softmax(x, -1)

    def item() -> Callable[[], Any]:
        x = torch.ones((), device=device)
        return lambda: x.item()

    def copy_within() -> Callable[[], Any]:
        a, b = torch.ones(16 << 20, device=device), torch.empty(16 << 20, device=device)
        return lambda: b.copy_(a)

    def copy_to_host() -> Callable[[], Any]:
        a, b = torch.ones(16 << 20, device=device), torch.empty(16 << 20)
        return lambda: b.copy_(a)

    def copy_from_host() -> Callable[[], Any]:
        a, b = torch.ones(16 << 20), torch.empty(16 << 20, device=device)
        return lambda: b.copy_(a)

    def conv2d() -> Callable[[], Any]:
        layer = nn.Conv2d(32, 64, 3, padding=1).to(device).requires_grad_(False)
        x = torch.randn(16, 32, 28, 28).to(device)
        return lambda: layer(x)

    def layer_norm() -> Callable[[], Any]:
        layer = nn.LayerNorm(512).to(device).requires_grad_(False)
        x = torch.randn(2048, 512).to(device)
        return lambda: layer(x)

    def attention() -> Callable[[], Any]:
        q, k, v = (torch.randn(4, 8, 256, 64).to(device) for _ in range(3))
        return lambda: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def training_step(
        model: nn.Module,
        optimizer_class: type[torch.optim.Optimizer],
        x: torch.Tensor,
        **options: Any,
    ) -> Callable[[], Any]:
        model.to(device)
        optimizer = optimizer_class(model.parameters(), **options)  # type: ignore[call-arg]
        inputs, labels = x.to(device), torch.randint(10, (x.shape[0],)).to(device)
        loss_function = nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad()
            loss_function(model(inputs), labels).backward()
            optimizer.step()

        return step

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def cnn() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Linear(64, 10)),
        )

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(128, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.encoder(x).mean(1))

    adamw, sgd = torch.optim.AdamW, torch.optim.SGD
    torch.manual_seed(0)
    return {
        "10 adds of 16": (add_chain(16), 50),
        "10 adds of 16k": (add_chain(16 << 10), 50),
        "10 adds of 256k": (add_chain(256 << 10), 5),
        "10 adds of 16M": (add_chain(16 << 20), 1),
        "32x32 product": (product(32), 100),
        "1024x1024 product": (product(1024), 2),
        "softmax 512x1000": (softmax(), 20),
        "conv2d 16x32x28x28": (conv2d(), 5),
        "layer_norm 2048x512": (layer_norm(), 10),
        "attention 4x8x256x64": (attention(), 5),
        "randn of 1M": (lambda: torch.randn(1 << 20, device=device), 5),
        "copy of 64 MB": (copy_within(), 2),
        "copy of 64 MB to the host": (copy_to_host(), 1),
        "copy of 64 MB from the host": (copy_from_host(), 1),
        "item": (item(), 100),
        "MLP step, batch 32, SGD": (training_step(mlp(), sgd, torch.randn(32, 64), lr=0.01, momentum=0.9), 10),
        "MLP step, batch 256, SGD": (training_step(mlp(), sgd, torch.randn(256, 64), lr=0.01, momentum=0.9), 5),
        "MLP step, batch 256, AdamW": (training_step(mlp(), adamw, torch.randn(256, 64)), 5),
        "CNN step, batch 32, SGD": (training_step(cnn(), sgd, torch.randn(32, 3, 32, 32), lr=0.01), 2),
        "transformer step, 2 layers, AdamW": (training_step(Transformer(), adamw, torch.randn(16, 64, 128)), 1),
    }


def measure(device: str, pattern: re.Pattern[str]) -> dict[str, float]:
    """Seconds of one call of each case, the best median of this process."""
    import torch

    def synchronize() -> None:
        if device != "cpu":
            torch.accelerator.synchronize()

    result = {}
    for name, (step, calls) in cases(device).items():
        if not pattern.search(name):
            continue
        for _ in range(3):
            step()
        synchronize()
        times = []
        end = time.perf_counter() + SECONDS_PER_CASE
        while time.perf_counter() < end or len(times) < REPEATS:
            begin = time.perf_counter()
            for _ in range(calls):
                step()
            synchronize()
            times.append((time.perf_counter() - begin) / calls)
        result[name] = statistics.median(times)
    return result


def load_of_others(seconds: float = 1.0) -> float:
    """Cores kept busy by others, while this process sleeps."""

    def busy() -> int:
        first_line = Path("/proc/stat").read_text().splitlines()[0]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first_line.split()[1:9])
        return user + nice + system + irq + softirq + steal

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / os.sysconf("SC_CLK_TCK") / seconds


def in_process(device: str, only: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", device, "--only", only]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def spread(values: list[float]) -> str:
    return f"{min(values) * 1e6:.1f} to {max(values) * 1e6:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--anyway", action="store_true", help="judge on a loaded machine too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, re.compile(options.only))))
        return 0

    limit = 0.15 * (os.cpu_count() or 1)
    rounds: dict[str, list[dict[str, float]]] = {"cpu": [], "openreg": []}
    loads = []
    for _ in range(options.rounds):
        for device, results in rounds.items():
            loads.append(load_of_others())
            results.append(in_process(device, options.only))
    load = statistics.median(loads)
    if load > limit and not options.anyway:
        print(f"Others keep {load:.2f} cores busy (at most {limit:.2f} allowed): no judgement on this machine now.")
        return 3

    print(f"{'case':28} {'CPU us':>10} {'openreg us':>11} {'ratio':>6}   spread CPU / openreg (us)")
    table = {}
    for name in rounds["cpu"][0]:
        cpu = [one[name] for one in rounds["cpu"]]
        openreg = [one[name] for one in rounds["openreg"]]
        ratio = statistics.median(openreg) / statistics.median(cpu)
        table[name] = {"cpu": statistics.median(cpu), "openreg": statistics.median(openreg), "ratio": ratio}
        print(
            f"{name:28} {statistics.median(cpu) * 1e6:10.1f} {statistics.median(openreg) * 1e6:11.1f} {ratio:6.2f}"
            f"   {spread(cpu)} / {spread(openreg)}"
        )
    print(f"others kept {load:.2f} cores busy (median)")
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
