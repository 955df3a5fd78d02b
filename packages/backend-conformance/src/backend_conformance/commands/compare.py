"""Compares two runs: what fails now and did not, and what no longer fails. The exit status is 1 after a regression."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..reports import compare, json


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance compare", description=__doc__)
    made.add_argument("before", type=Path, help="a file that --json wrote")
    made.add_argument("after", type=Path, help="another one")
    options = made.parse_args(arguments)
    try:
        comparison = compare.Comparison.of(json.read(options.before), json.read(options.after))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(comparison.text())
    return 1 if comparison.regressions else 0
