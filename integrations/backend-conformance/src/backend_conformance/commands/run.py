"""Runs the checks on a device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import catalogue, groups
from ..levels import Level
from ..reports import json, terminal
from ..result import Result, Summary
from ..runner import CannotStart, Runner

USAGE_ERROR = 2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m backend_conformance",
        description="Checks what PyTorch expects of a backend. Other commands: list, explain.",
    )
    made.add_argument("checks", nargs="*", metavar="CHECK", help="ids, groups, or patterns with * and ?; all if none")
    made.add_argument("--device", required=True, help="the name of the device type")
    made.add_argument(
        "--setup", default="", help="a package to import, or file.py:function to call, to load the backend"
    )
    made.add_argument("--level", type=Level.parse, default=Level.COMPLETE, help="the highest level to run")
    made.add_argument("-n", "--workers", type=int, default=1, help="processes at a time")
    made.add_argument("--patience", type=float, default=1.0, help="a factor for the limits of time")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    made.add_argument("--folder", type=Path, default=groups.CHECKS_FOLDER, help="a folder with other groups of checks")
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    listed = catalogue.load(options.folder)
    for group, message in listed.broken.items():
        print(f"the group {group} cannot be imported: {message}", file=sys.stderr)
    chosen = listed.select(options.checks, options.level)
    if not chosen or listed.broken:
        print("no check has such an id" if not chosen else "nothing ran", file=sys.stderr)
        return USAGE_ERROR
    results: list[Result] = []

    def report(result: Result) -> None:
        results.append(result)
        print(f"{result.seconds:6.1f} s  {result.verdict.value:14}  {result.id}", file=sys.stderr, flush=True)

    runner = Runner(options.device, options.setup, options.folder, options.workers, options.patience, report=report)
    try:
        runner.run(chosen)
    except CannotStart as error:
        print(f"the backend cannot be loaded: {error}", file=sys.stderr)
        return USAGE_ERROR
    order = {each.id: number for number, each in enumerate(chosen)}
    results.sort(key=lambda each: order.get(each.id, len(order)))
    summary = Summary(options.device, runner.torch, results, selected=bool(options.checks))
    if options.json:
        json.write(summary, options.json)
    print(terminal.text(summary, _command(options), options.level))
    return 1 if summary.failures(options.level) else 0


def _command(options: argparse.Namespace) -> list[str]:
    command = ["python", "-m", "backend_conformance", "--device", options.device]
    if options.setup:
        command += ["--setup", options.setup]
    return command
