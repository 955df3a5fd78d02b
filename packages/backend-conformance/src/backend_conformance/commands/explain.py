"""Explains checks: what PyTorch requires, and what goes wrong without it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import catalogue, groups
from .options import folder


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance explain", description=__doc__)
    made.add_argument("checks", nargs="+", metavar="CHECK", help="ids, groups, or patterns with * and ?")
    made.add_argument(
        "--folder", type=folder, default=groups.CHECKS_FOLDER, help="a folder with other groups of checks"
    )
    options = made.parse_args(arguments)
    chosen = {each.base: each for each in catalogue.load(options.folder).select(options.checks)}
    if not chosen:
        print("no check matches")
        return 2
    for each in chosen.values():
        print(f"{each.base}  (level: {each.level.label})\n\n{each.doc}\n")
        print(f"implement: {each.hook}\nread:      {each.page}\n")
    return 0
