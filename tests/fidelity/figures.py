#!/usr/bin/env python3
"""Figures of GPU memory that others have published, and those of the same programs here, without computing.

    python tests/fidelity/figures.py [REGEX] [--json FILE]

REGEX selects programs by name. Each runs in a process of its own, with the profile of the GPU. The exit status is 1 if
a figure differs by more than is accepted of its kind. TEST_DEVICE=cuda selects openreg-cuda.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / each) for each in ("fidelity", "python", "python/memory", "python/distributed")]

import fsdp_constants  # noqa: E402
import gpt2  # noqa: E402
import llama  # noqa: E402
import published_programs  # noqa: E402
import torch  # noqa: E402
import vit  # noqa: E402
from devices import DEVICE, OPENREG  # noqa: E402

ROUNDED_ABOVE = 16384  # MiB: figures to the byte that went through float32
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
FLASH_FIRST = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}  # as in the versions that the figures are of
HOST_AHEAD = {"TORCH_OPENREG_SCHEDULE": "latest"}  # FSDP1's memory depends on it
H100 = {"gpu": "h100", "memory": "97320MiB"}
PERCENT = 0.950396  # GiB of the memory of such an H100


@dataclass(frozen=True)
class Program:
    """`run` returns the figures that are published, and may return others.

    `within` and `by` are the differences that are accepted, relative and in the figures' unit. With neither, any is, as
    of the figure that is only `reported`.
    """

    name: str
    run: Callable[[], dict[str, float]]
    published: dict[str, float]
    unit: str = "MiB"
    within: float | None = None
    by: float | None = None
    reported: str = ""
    gpu: str = "a100"
    memory: str = "80GiB"
    ranks: int = 1
    settings: dict[str, str] = field(default_factory=dict)

    def accepts(self, figure: str, found: float) -> bool:
        published = self.published[figure]
        if figure == self.reported:
            return True
        if self.by is not None:
            return abs(found - published) <= (self.by if published < ROUNDED_ABOVE else 1e-3)
        return found == found and (self.within is None or abs(found - published) <= self.within * published)


def library() -> Any:
    return importlib.import_module("torch_openreg._C" if DEVICE == OPENREG else "openreg_cuda.device._C")


def layers() -> Iterator[Program]:
    for gpu, rows in published_programs.PEAKS.items():

        def run(gpu: str = gpu) -> dict[str, float]:
            clear = library().clear_blas_workspaces if DEVICE == OPENREG else torch._C._cuda_clearCublasWorkspaces
            return published_programs.measure(gpu, DEVICE, clear)

        published = {f"{name} {size}": peak for name, sizes in rows.items() for size, peak in sizes.items()}
        yield Program(f"layers, {gpu}", run, published, by=0, gpu=gpu)


def convolutions() -> Iterator[Program]:
    for name, checkpointed in (("convolutions, FSDP1", False), ("convolutions, FSDP1, checkpoints", True)):

        def run(checkpointed: bool = checkpointed) -> dict[str, float]:
            torch.distributed.init_process_group()
            return fsdp_constants.memory_of_training(checkpointed)

        published: dict[str, float] = dict(fsdp_constants.expected(checkpointed))
        yield Program(name, run, published, by=fsdp_constants.TOLERANCE, ranks=fsdp_constants.RANKS)


def gpt2s() -> Iterator[Program]:
    def program(name: str, published: float, options: gpt2.Options, ranks: int = 1) -> Program:
        def run() -> dict[str, float]:
            return {"reserved": gpt2.reserved(options)}

        # For a GPU Inductor pads operands whose sizes are odd.
        within = None if options.compiled and options.words % 64 else 0.01
        return Program(f"GPT-2 124M, {name}", run, {"reserved": published}, within=within, ranks=ranks)

    options = gpt2.Options()
    yield program("written out", 26892, options)
    options = replace(options, kept_mask=False)
    yield program("mask on the fly", 26872, options)
    options = replace(options, fused_optimizer=True)
    yield program("fused AdamW", 26872, options)
    options = replace(options, bfloat16=True)
    yield program("bfloat16", 14118, options)
    options = replace(options, library_layers=True)
    yield program("nn.LayerNorm and nn.GELU", 11842, options)
    options = replace(options, library_attention=True)
    padded = replace(options, words=50304)
    larger = replace(padded, batch=32)
    yield program("SDPA", 6042, options)
    yield program("SDPA, 50304 words", 6032, padded)
    yield program("SDPA, batch 32", 23048, larger)
    yield program("compiled", 6336, replace(options, compiled=True))
    yield program("compiled, 50304 words", 6032, replace(padded, compiled=True))
    yield program("compiled, batch 32", 23048, replace(larger, compiled=True))
    yield program("compiled, batch 32, DDP", 23344, replace(larger, compiled=True, parallel=True), ranks=4)


def vits() -> Iterator[Program]:
    def program(name: str, published: float, **options: Any) -> Program:
        def run() -> dict[str, float]:
            return {"reserved": vit.reserved(vit.Options(**options))}

        return Program(f"ViT-L/16, {name}", run, {"reserved": published}, "GB", within=0.02)

    yield program("float32", 26.79)
    yield program("mixed float16", 18.21, precision="float16")
    yield program("bfloat16", 13.82, precision="bfloat16")
    yield program("batch 16", 5.69, batch=16, precision="bfloat16")
    yield program("batch 4 x 4", 3.91, batch=4, accumulated=4, precision="bfloat16")
    yield program("batch 4 x 4, SGD", 2.02, batch=4, accumulated=4, precision="bfloat16", sgd=True)


def llamas() -> Iterator[Program]:
    def program(
        name: str, options: llama.Options, published: dict[str, float], within: float | None, **others: Any
    ) -> Program:
        def run() -> dict[str, float]:
            first, *_, last = llama.train(options)
            return {"reserved, step 1": first["reserved"], **last}

        return Program(f"Llama {name}", run, published, "GiB", within=within, **others)

    debug = {"reserved, step 1": 1.26, "reserved": 1.35}
    yield program("6M", llama.DEBUG, debug, 0.03, ranks=2, settings=EXPANDABLE)
    for ranks, reserved in ((8, 82.4), (128, 67.0)):
        name, published = f"8B, {ranks} ranks", {"reserved": reserved}
        yield program(name, llama.EIGHT_BILLION, published, 0.01, ranks=ranks, settings=FLASH_FIRST, **H100)
        settings = FLASH_FIRST | EXPANDABLE
        name = f"{name}, expandable segments"
        yield program(name, llama.EIGHT_BILLION, published, None, ranks=ranks, settings=settings, **H100)
    compiled = replace(llama.EIGHT_BILLION, compiled=True)
    for ranks, reserved in ((8, 77.0), (128, 62.0)):
        name, published = f"8B, {ranks} ranks, compiled", {"reserved": reserved}
        yield program(name, compiled, published, 0.01, ranks=ranks, settings=FLASH_FIRST, **H100)
    for checkpoints, fsdp1, active, reserved in (
        ("full", False, 23.92, 32.64),
        ("operators", False, 52.13, 62.51),
        ("full", True, 24.81, 33.82),
        ("operators", True, 52.98, 67.23),
    ):
        name = f"7B, FSDP{1 if fsdp1 else 2}, checkpoints: {checkpoints}"
        options = replace(llama.SEVEN_BILLION, checkpoints=checkpoints, fsdp1=fsdp1)
        published = {"active": active * PERCENT, "reserved": reserved * PERCENT}
        settings = FLASH_FIRST | (HOST_AHEAD if fsdp1 else {})
        # Of FSDP2 in March 2024 only what is active is known to be today's.
        reported = "" if fsdp1 else "reserved"
        yield program(name, options, published, 0.02, ranks=8, settings=settings, reported=reported, **H100)


PROGRAMS = [*layers(), *convolutions(), *gpt2s(), *vits(), *llamas()]


def run_here(program: Program) -> dict[str, float]:
    if DEVICE == OPENREG:
        from torch_openreg.fits.profiles import PROFILES

        gpu = PROFILES[program.gpu].gpu
        assert gpu is not None
        library().set_gpu(*gpu.capability, gpu.multiprocessors, gpu.threads)
    return program.run()


def run(program: Program) -> dict[str, float]:
    """In a process of its own; without figures if it fails."""
    settings = {"TORCH_OPENREG_COMPUTE": "0", "TORCH_OPENREG_MEMORY": program.memory} | program.settings
    if DEVICE != OPENREG:
        settings["OPENREG_CUDA"] = program.gpu
    if program.ranks > 1:
        settings["TORCH_OPENREG_FAKE_WORLD"] = str(program.ranks)
    command = [sys.executable, __file__, "--run", program.name]
    ran = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {}


def compare(program: Program) -> list[dict[str, Any]]:
    """A row for each figure that is published."""
    begin = time.perf_counter()
    found = run(program)
    seconds = time.perf_counter() - begin
    rows = []
    for figure, published in program.published.items():
        here = found.get(figure, math.nan)
        row = {"program": program.name, "figure": figure, "published": published, "here": here, "unit": program.unit}
        row |= {"error": (here - published) / published, "accepted": program.accepts(figure, here)}
        rows.append(row | {"seconds": seconds})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", metavar="REGEX")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run_here(next(each for each in PROGRAMS if each.name == arguments.run))))
        return 0
    rows = []
    print(f"{'program':42} {'figure':18} {'published':>14} {'here':>14}      {'error':>8}")
    for program in PROGRAMS:
        if not re.search(arguments.only, program.name):
            continue
        for row in compare(program):
            rows.append(row)
            print(
                "{program:42} {figure:18} {published:14.6f} {here:14.6f} {unit:4} {error:+8.2%}".format(**row),
                "" if row["accepted"] else "not accepted",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return int(not all(row["accepted"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
