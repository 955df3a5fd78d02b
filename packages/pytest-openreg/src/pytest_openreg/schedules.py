"""Runs a program under the adversarial schedules of openreg, each in its own process, and compares what it prints.

    python -m pytest_openreg.schedules [-n SEEDS | --seeds 3,5] [--timeout SECONDS] SCRIPT [ARGUMENTS]

The program must print the same in each run: results, but no times or addresses.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

VARIABLE = "TORCH_OPENREG_SCHEDULE"
EARLIEST = "earliest"  # that of a device for which none is set; also called "default"
SEEDS = 8
LINES = 10  # of a difference, and of the standard error of a failure


def adversarial(seeds: Sequence[int]) -> list[str]:
    """The adversarial schedules with these seeds, as `torch.openreg.set_schedule` accepts them."""
    return ["latest", *(f"random:{seed}" for seed in seeds)]


@dataclass
class Run:
    status: int | None
    """None: the program did not end in time."""
    output: str
    errors: str


def run(command: Sequence[str], schedule: str, timeout: float | None) -> Run:
    """Runs the program once."""
    environment = {**os.environ, VARIABLE: schedule}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as expired:
        return Run(None, _text(expired.stdout), _text(expired.stderr))
    return Run(done.returncode, done.stdout, done.stderr)


def difference(run: Run, expected: Run) -> str | None:
    """How a run differs from that in the schedule `earliest`; None if it does not."""
    if run.status is None:
        return "did not end in time"
    if run.status != expected.status:
        return "\n".join([f"exit status {run.status}", *run.errors.splitlines()[-LINES:]])
    if run.output != expected.output:
        lines = difflib.unified_diff(
            expected.output.splitlines(), run.output.splitlines(), EARLIEST, "this schedule", lineterm="", n=0
        )
        return "\n".join(["other output", *list(lines)[:LINES]])
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all runs succeed and print the same. 1: some run differs. 2: the program fails in the schedule `earliest`."""
    options = _parse(arguments)
    command = [sys.executable, options.script, *options.arguments]
    expected = run(command, EARLIEST, options.timeout)
    if expected.status != 0:
        print(f"{EARLIEST}: {'did not end in time' if expected.status is None else f'exit status {expected.status}'}")
        print(expected.errors, end="")
        return 2
    print(f"{EARLIEST}: exit status 0")
    differs = False
    for schedule in adversarial(options.seeds):
        found = difference(run(command, schedule, options.timeout), expected)
        differs = differs or found is not None
        print(f"{schedule}: {found or 'the same'}", flush=True)
        if found:
            print(f"  reproduce: {VARIABLE}={schedule} {shlex.join(command)}")
    return 1 if differs else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_openreg.schedules",
        description="Runs a program under the adversarial schedules of openreg and compares exit status and output.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-n", type=int, metavar="N", default=SEEDS, help=f"use the seeds 1 to N (default {SEEDS})")
    which.add_argument("--seeds", type=_seeds, metavar="A,B,...", help="use these seeds")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for each run (default: none)")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.seeds is None:
        options.seeds = list(range(1, options.n + 1))
    return options


def _seeds(text: str) -> list[int]:
    seeds = [int(seed) for seed in text.split(",")]
    if not all(0 <= seed < 2**64 for seed in seeds):
        raise ValueError
    return seeds


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


if __name__ == "__main__":
    sys.exit(main())
