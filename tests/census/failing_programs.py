#!/usr/bin/env python3
"""Whether programs recover from a command that fails, and from memory that runs out, wherever that is.

    python tests/census/failing_programs.py [--slice] [--only REGEX] [--json FILE]

Each program of programs.py runs with its 1st, 2nd, ... launch failing, and so with its copies and its allocations; if
they are many, with some that are spread evenly. The error of a launch is raised by the program or by the wait after it,
and names the kernel and the line; a lack of memory is raised by the call. Nothing is left in use, and the next run has
the same bits as before. Programs of two ranks have the fault in one of them, and the next run makes new process groups.
Exit status 1 if a program does something else.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from command_line import parser
from leftovers import NEVER, bits_of, forget, memory_beyond, same_bits, settled_memory
from outcome import DEVICE, device_module
from processes import run
from programs import PROGRAMS, Run
from result import Result, failure, report

IN_SLICE = ("graph", "streams")  # every run of the tests has these,
MOST_IN_SLICE = 4  # with so many positions that fail; otherwise
MOST = 50  # in each program and place
FAULTS = {"launch": "error@launch", "copy": "error@copy", "allocation": "oom@allocation", "pin": "oom@pin"}


class Sweep:
    def __init__(self, result: Result, program: Run, most: int) -> None:
        self.result, self.program, self.most = result, program, most
        self.spec = FAULTS[result.check]
        self.inject = getattr(program, "inject", device_module().faults.inject)

    def undisturbed(self) -> list[Any]:
        result = self.program()
        torch.accelerator.synchronize()
        return bits_of(result)

    def count(self) -> int:
        with self.inject(f"{self.spec}:{NEVER}") as fault:
            self.program()
            torch.accelerator.synchronize()
        return int(fault.counted)

    def disturbed(self, number: int) -> None:
        result = None
        errors: list[Exception] = []
        with self.inject(f"{self.spec}:{number}") as fault:
            try:
                result = self.program()
            except Exception as error:
                errors.append(error)
            errors += left_in_streams()
        if not fault.fired:
            self.report(number, "did not happen")
        elif not errors:
            self.report(number, f"the error is lost ({fault.where[0]})")
        else:
            self.judge(number, errors, fault)
        for each in errors:
            forget(each)
        errors.clear()
        del result

    def judge(self, number: int, errors: list[Exception], fault: Any) -> None:
        texts = [str(error) for error in errors]
        if self.result.check in ("allocation", "pin"):
            if not isinstance(errors[0], torch.OutOfMemoryError):
                self.report(number, f"raises {failure(errors[0])} ({fault.where[0]})")
            if len(errors) > 1:
                self.report(number, f"leaves an error in a stream: {failure(errors[1])}")
            return
        kernel = re.search(r"\((.*)\)", fault.where[0])
        named = [text for text in texts if fault.spec in text]
        if not named:
            self.report(number, f"raises {failure(errors[0])} ({fault.where[0]})")
        elif self.result.check == "copy" and named[0].startswith(f"{DEVICE}: injected fault ({fault.spec}): "):
            return  # the host waits for this copy, so the call itself raises
        elif not any(kernel and kernel[1] in text for text in named):
            self.report(number, f"the error does not name the kernel: {named[0][:300]} ({fault.where[0]})")
        elif not any(re.search(r"launched by .*\.py:\d+", text) for text in named):
            self.report(number, f"the error does not name the line: {named[0][:300]}")

    def check(self) -> None:
        self.undisturbed()
        expected = self.undisturbed()
        count = self.count()
        start = settled_memory()
        for number in positions(count, self.most):
            self.result.samples += 1
            self.disturbed(number)
            if (left := memory_beyond(start)) > 0:
                self.report(number, f"leaves {left} bytes")
            try:
                got = self.undisturbed()
            except Exception as error:
                self.report(number, f"the next run raises {failure(error)}")
                forget(error)
                left_in_streams()
                continue
            if not same_bits(got, expected):
                self.report(number, "the next run has another result")

    def report(self, number: int, found: str) -> None:
        self.result.unequal(f"[{self.spec}:{number}] {found}")


def left_in_streams() -> list[Exception]:
    """Takes the errors that no call has raised."""
    errors: list[Exception] = []
    while len(errors) < 10:
        try:
            torch.accelerator.synchronize()
            break
        except Exception as error:
            errors.append(error)
    return errors


def positions(count: int, most: int) -> list[int]:
    """All, or so many that are spread evenly, the first and the last among them."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + i * (count - 1) // (most - 1) for i in range(most)})


def sweep(most: int, make: Callable[[], Run], result: Result) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        Sweep(result, make(), most).check()
    except Exception as error:
        result.unequal(f"the check failed: {failure(error)}")
    return result


def main() -> int:
    options = parser(__doc__, f"{MOST_IN_SLICE} positions of {', '.join(IN_SLICE)}").parse_args()
    if os.environ.get("TORCH_OPENREG_STACKS") != "1":  # errors name lines; `import torch` reads it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "TORCH_OPENREG_STACKS": "1"})
    entries = []
    for name, make in PROGRAMS.items():
        if options.slice and name not in IN_SLICE:
            continue
        places = [place for place in FAULTS if re.search(options.only, f"{name}, {place}")]
        entries += [(make, [Result(name, place, "")]) for place in places]  # each in a process of its own
    most = MOST_IN_SLICE if options.slice else MOST
    results = run(entries, partial(sweep, most), options.jobs)
    bad = report(results, options.json)
    print(f"{len(results)} programs and places, {sum(each.samples for each in results)} runs; {len(bad)} differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
