"""Lists the checks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import catalogue, groups
from ..levels import Level
from .options import folder, level


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance list", description=__doc__)
    made.add_argument("checks", nargs="*", metavar="CHECK", help="ids, groups, or patterns with * and ?; default: all")
    made.add_argument("--level", type=level, default=Level.COMPLETE, help="the highest level to list")
    made.add_argument(
        "--folder", type=folder, default=groups.CHECKS_FOLDER, help="a folder with other groups of checks"
    )
    options = made.parse_args(arguments)
    chosen = catalogue.load(options.folder).select(options.checks, options.level)
    for each in chosen:
        print(f"{each.level.label:13} {each.id:60} {each.summary}")
    print(f"{len(chosen)} checks")
    return 0 if chosen else 2
