"""Random programs on the device, compared with the CPU bit by bit.

    python tests/fuzz/fuzz.py [--seconds 60] [--threads 3] [--seed 0] [--programs 1] [--devices 2] [--graphs]

Programs use streams, events, views, changes in place, copies to and from the host, and both devices. Calls that the CPU
refuses are among them, and commands that fail late. A wait for the whole device collects those of all threads: with
several threads, either no program fails or none waits so, in turn. A program that differs is printed; `--seed` makes it
again, and `--repeat` runs it many times. With `--graphs`, programs are captured, and replayed with other elements.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback

import torch

import replays
from machine import Difference, Machine
from program import Author, Program


def differences(programs: list[Program], repeat: int) -> list[str]:
    """Of programs that run at the same time, each in a thread of its own."""
    found: list[str] = []

    def run(program: Program) -> None:
        for _ in range(repeat):
            try:
                Machine(program).run()
            except Difference as difference:
                found.append(f"{program}\n{difference}")
                return
            except Exception:
                found.append(f"{program}\n{traceback.format_exc()}")
                return

    threads = [threading.Thread(target=run, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="how many, at most")
    parser.add_argument("--threads", type=int, default=3, help="programs at the same time")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others count on")
    parser.add_argument("--repeat", type=int, default=1, help="how often each is run")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--graphs", action="store_true", help="capture programs, one at a time, and replay them")
    options = parser.parse_args()
    devices = min(options.devices, torch.accelerator.device_count())
    end = time.monotonic() + options.seconds
    run, steps = 0, 0
    while options.graphs and run < options.programs and time.monotonic() < end:
        if difference := replays.difference(options.seed + run):
            print(difference)
            return 1
        run += 1
    if options.graphs:
        print(f"{run} programs in graphs: as on the CPU")
        return 0
    while run < options.programs and time.monotonic() < end:
        count = min(options.threads, options.programs - run)
        alone = options.threads == 1
        fails = alone or (options.seed + run) // options.threads % 2 == 1
        authors = [Author(options.seed + run + i, devices, fails, not fails or alone) for i in range(count)]
        programs = [author.write() for author in authors]
        if found := differences(programs, options.repeat):
            print(*found, sep="\n\n")
            return 1
        run += count
        steps += sum(len(program.steps) for program in programs)
    print(f"{run} programs, {steps} steps: as on the CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
