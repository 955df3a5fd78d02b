#!/usr/bin/env python3
"""Which elements of their operands operators use, and what the race detector counts.

    python tests/census/operands.py [--slice] [--only REGEX] [--json FILE]

The calls are those that the samples of PyTorch's operator database (op_db) and the modules of its module database, in
training and in evaluation, reach below autograd, forward and backward; besides, each with numbers as 0, with flags
reversed, with a size of 0, and with an empty index (`recorded_calls.py`).

On the CPU, groups of elements of each operand are changed (NaN, other numbers), and what else comes of the call is
compared: so the elements are found that it reads, and those that it writes (`found_uses.py`). Then, with the race
detector on, the device makes the same call without an order (`counted_uses.py`) after

- a write of the whole operand: it has to be reported if elements are read or written, and not otherwise;
- a write of one element that is neither: it must not be reported;
- a read of the whole operand: it has to be reported if elements are written, and not otherwise;
- a read of one element that is not written: it must not be reported.

Exit status 1 if the detector counts otherwise and `expected_uses.py` does not list it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import sys
import warnings
import zlib
from typing import Any

import torch

from command_line import parser
from counted_uses import Probe
from entries import PREFERRED, census, dtype_name, entry_name, first
from expected import EXCEPTED
from expected_uses import is_expected
from found_uses import found_uses
from outcome import clear_errors, device_module
from processes import run
from recorded_calls import OperatorCall, programs_of_module, programs_of_operator, recorded, variants
from result import Result, failure, report
from survivors import run_surviving

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

SLICE = 48  # one entry in so many in every run
PER_ENTRY = 60  # calls with their variants
SECONDS = 60.0  # for one of them
LARGEST = 1 << 20  # elements of a call's operands, at most: each call is made a hundred times


def calls_of(entry: Any, dtype: torch.dtype, samples: int) -> list[OperatorCall]:
    torch.manual_seed(0)
    programs = programs_of_module if hasattr(entry, "module_cls") else programs_of_operator
    calls = recorded(entry.name, programs(entry, dtype, samples))
    small = (call for call in calls if sum(t.numel() for t in call.named_operands().values()) <= LARGEST)
    return list(itertools.islice((variant for call in small for variant in variants(call)), PER_ENTRY))


def judge(probe: Probe, call: OperatorCall) -> list[str]:
    """How what is counted of its operands differs from what was found. Raises NotImplementedError if the call cannot
    be judged."""
    found = found_uses(call)
    if found is None:
        raise NotImplementedError
    wrong = []
    for name, uses in found.items():
        try:
            differences = probe.differences(call, name, uses)
        except Exception as error:  # the device refuses the call, late or at once
            clear_errors()
            differences = [f"raises {failure(error)}"]
        wrong += [f"{name} {text}" for text in differences if not is_expected(call, name, text)]
    return wrong


def check_operands(entry: Any, result: Result, samples: int) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    @functools.cache
    def prepared() -> tuple[list[OperatorCall], Probe]:  # in the process that uses the device
        calls = calls_of(entry, getattr(torch, result.dtype), samples)
        device_module().set_race_detection_mode("error")
        return calls, Probe()

    def answer(number: int) -> str:
        calls, probe = prepared()
        if number >= len(calls):
            return json.dumps([False, []])
        try:
            return json.dumps([True, [f"{calls[number]}: {text}" for text in judge(probe, calls[number])]])
        except NotImplementedError:
            return json.dumps([False, []])

    seen = set()
    for text in run_surviving(answer, range(PER_ENTRY), SECONDS).values():
        if text.startswith("crashed"):  # most often, the CPU's kernel does not expect a size of 0
            result.cpu_failures += 1
            continue
        judged, wrong = json.loads(text)
        result.samples += judged
        for each in wrong:
            kind = (
                each.split("(")[0],
                each.rsplit("]: ", 1)[-1].split(": ")[0],
                each.rsplit("): ", 1)[-1].split(": ")[0],
            )
            if kind not in seen:
                seen.add(kind)
                result.unequal(each)
    return result


def entries(in_slice: bool, pattern: re.Pattern[str]) -> list[tuple[Any, list[Result]]]:
    """Operators in the usual dtype, and modules in float32."""

    def is_chosen(name: str) -> bool:
        return bool(pattern.search(name)) and not (in_slice and zlib.crc32(name.encode()) % SLICE)

    chosen = []
    for op, _ in census():
        name = entry_name(op)
        if name not in EXCEPTED and is_chosen(name):
            chosen.append((op, [Result(name, "operands", dtype_name(dtype)) for dtype in first(op, PREFERRED)]))
    for info in module_db:
        if is_chosen(info.name):
            chosen.append((info, [Result(info.name, "operands", "float32")]))
    return chosen


def main() -> int:
    options = parser(__doc__, f"one entry in {SLICE}, by a hash of its name", samples=4).parse_args()
    results = run(
        entries(options.slice, re.compile(options.only)),
        lambda entry, result: check_operands(entry, result, options.samples),
        options.jobs,
    )
    bad = report(results, options.json)
    print(f"{sum(r.samples for r in results)} calls; {sum(len(r.details) for r in bad)} operands counted otherwise")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
