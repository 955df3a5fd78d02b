#!/usr/bin/env python3
"""Times a training step while other processes keep every core busy, as in `pytest -n 4` on two cores.

    python benchmarks/beside_others.py [--neighbours 2] [--seconds 5] [--rounds 3]

Prints the mean time of a step on the CPU and on openreg, each in its own process, alternating, and the 95th percentile.
The exit status is 1 if openreg's mean is above the CPU's: threads that wait for each other lose most beside others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from rounds import DEVICES, cores, synchronize


def measure(device: str, seconds: float) -> None:
    """Writes the seconds of each step, whose loss the host reads at its end, to stdout."""
    import models
    import torch

    torch.manual_seed(0)
    step = models.mlp_step(device)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        synchronize(device)
        times.append(time.perf_counter() - begin)
    print(json.dumps(times[len(times) // 10 :]))  # the first ones warm up


def in_process(device: str, seconds: float) -> list[float]:
    command = [sys.executable, sys.argv[0], "--measure", device, "--seconds", str(seconds)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0" if device == "cpu" else "1"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return list(json.loads(output))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=cores(), help="busy processes (default: one for each core)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=DEVICES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.seconds)
        return 0
    times: dict[str, list[float]] = {device: [] for device in DEVICES}
    with ExitStack() as neighbours:
        for _ in range(options.neighbours):
            neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            neighbours.callback(neighbour.wait)
            neighbours.callback(neighbour.kill)
        for _ in range(options.rounds):
            for device in DEVICES:
                times[device] += in_process(device, options.seconds)
    means = {device: statistics.mean(values) for device, values in times.items()}
    print(f"MLP, batch 32, SGD; {cores()} cores, {options.neighbours} busy neighbours; milliseconds")
    for device, values in times.items():
        late = statistics.quantiles(values, n=20)[-1]
        print(f"{device:8} mean {means[device] * 1e3:7.2f}   95 of 100 steps within {late * 1e3:7.2f}")
    ratio = means["openreg"] / means["cpu"]
    print(f"ratio of means {ratio:.2f}")
    return 0 if ratio <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
