#!/usr/bin/env python3
"""Times openreg against PyTorch's CPU backend on machines with eight or more cores.

    python benchmarks/many_cores.py [--rounds 5] [--case REGEX] [--json FILE] [--anyway]

The target is a ratio of at most 1.1. If a case misses it, the exit status is 1. With fewer than eight cores, or on a
busy machine, it does not measure (exit status 3).
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

import cases
import models
import rounds
import torch
from rounds import Step, steady

LEAST_CORES = 8
TARGET = 1.1
STREAMS, PRODUCTS = 8, 20


def streams_of_products(device: str) -> Step:
    """Products on several streams, launched in turn; on the CPU, which has no streams, the same products."""
    pairs = [(torch.randn(512, 512).to(device), torch.randn(512, 512).to(device)) for _ in range(STREAMS)]
    streams = [nullcontext() if device == "cpu" else torch.Stream(device=device) for _ in pairs]
    rounds.synchronize(device)

    def step() -> None:
        for _ in range(PRODUCTS):
            for stream, (a, b) in zip(streams, pairs, strict=True):
                with stream:
                    a @ b

    return step


def groups() -> rounds.Groups:
    return {
        "overlap with Python": [
            steady("product of 4096, 10 ms of Python", lambda device: cases.product_before(device, 4096, 10))
        ],
        "training step": [steady("CNN, batch 128, SGD", lambda device: models.cnn_step(device, 128), 2)],
        "streams": [
            steady("8 streams, products of 512", streams_of_products, operations=STREAMS * PRODUCTS),
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.add_options(parser)
    options = parser.parse_args()
    if rounds.cores() < LEAST_CORES and not options.anyway and not options.measure:
        print(
            f"This benchmark needs {LEAST_CORES} or more cores (got {rounds.cores()}). "
            "Use --anyway to measure nevertheless.",
            file=sys.stderr,
        )
        return 3
    report = rounds.run(groups(), options)
    if not report:
        return 0 if options.measure else 3
    missed = [name for name, result in report["cases"].items() if result["ratio"] > TARGET]
    print(f"above the target of {TARGET}: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
