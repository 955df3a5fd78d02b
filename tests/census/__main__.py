#!/usr/bin/env python3
"""Compares openreg with the CPU over PyTorch's operator database (op_db), one process for each entry.

    python tests/census [--slice] [--check values ...] [--dtype float32 ...] [--only REGEX] [--json FILE]

Each entry's samples run on the CPU and on the device, with each dtype that the CPU takes; values, dtypes, shapes,
strides and the device of the results are compared, and the gradients where the CPU has any (`values`). Random operators
(whose CPU results change with the seed) are compared in all but values. The other checks change the samples, call with
`out=`, make the calls that are to be refused, replay calls in graphs (`graphs`), or make them again and again
(`repeats`). Exit status 1 if something is not as `expected.py` says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from checks import CHECKS, run_check
from entries import IN_TURN, census, census_slice, entry_name, excepted, slice_in_turn
from expected import in_vain, unexpected
from processes import run
from result import Result


def run_case(samples: int, op: Any, case: Result) -> Result:
    torch.set_num_threads(1)
    return case if excepted(case) else run_check(op, case, samples)


def summary(results: list[Result]) -> str:
    """For each check and dtype: equal, unequal by name, how many never made the host wait, launches by tier."""
    lines = []
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.check, result.dtype), []).append(result)
    for (check, dtype), group in sorted(groups.items(), key=lambda item: (item[0][0] != "values", item[0])):
        counts = Counter(result.status for result in group)
        judged = [result for result in group if result.status in ("equal", "unequal")]
        tiers: Counter[str] = Counter()
        for result in group:
            tiers.update(result.launches)
        backward = sum(result.backward for result in judged)
        lines.append(
            f"{check}, {dtype}: {counts['equal']} of {len(judged) + counts['crashed']} equal"
            f" ({backward} with gradients), {sum(not r.waits for r in judged)} never make the host wait,"
            f" not judged {counts['cpu'] + counts['excepted']}, launches {dict(tiers)}"
        )
        lines += [f"  {r.status} {r.name}: {r.details[0]}" for r in group if r.status in ("unequal", "crashed")]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--slice",
        action="store_true",
        help="one entry in eight, with one dtype and one other check; one in 16 with --check graphs or repeats",
    )
    parser.add_argument("--check", nargs="*", choices=list(CHECKS), help="only these")
    parser.add_argument("--dtype", nargs="*", help="only these")
    parser.add_argument("--samples", type=int, help="of each entry, at most (10; for the slice 2)")
    parser.add_argument("--only", default="", help="entries whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write all results there")
    options = parser.parse_args()
    pattern = re.compile(options.only)
    samples = options.samples or (2 if options.slice else 10)
    if options.slice:
        in_turn = next((check for check in IN_TURN if options.check == [check]), None)
        entries = slice_in_turn(in_turn) if in_turn else census_slice()
    else:
        entries = census(*(set(choice) if choice else None for choice in (options.check, options.dtype)))
    entries = [entry for entry in entries if pattern.search(entry_name(entry[0]))]
    results = run(entries, partial(run_case, samples), options.jobs)
    results.sort(key=lambda result: (result.name, result.check, result.dtype))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(summary(results))
    everything = not (options.slice or options.check or options.dtype or options.only)
    surprises = unexpected(results) + (in_vain(results) if everything else [])
    print("as expected" if not surprises else "not as expected:", *surprises, sep="\n  ")
    return int(bool(surprises))


if __name__ == "__main__":
    sys.exit(main())
