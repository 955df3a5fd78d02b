"""Runs the checks on a device."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .. import groups
from ..declarations import BadDeclarations
from ..levels import Level
from ..reports import badge, html, json, terminal
from ..result import Result
from ..runner import CannotStart
from ..session import NothingToRun, Session
from .options import folder, level

NOTHING_RAN, INTERRUPTED = 2, 130  # as exit statuses; 1 is a failed check


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m backend_conformance",
        description="Checks what PyTorch expects of a backend. The exit status is 0 if no check fails.",
        epilog="Other commands: list, explain, compare, matrix, pages, new; each has --help.",
    )
    made.add_argument("checks", nargs="*", metavar="CHECK", help="ids, groups, or patterns with * and ?; default: all")
    made.add_argument("--device", required=True, help="the name of the device type")
    made.add_argument(
        "--setup", default="", help="how to load the backend: a package to import, or file.py:function to call"
    )
    made.add_argument("--level", type=level, default=Level.COMPLETE, help="the highest level to run")
    made.add_argument("--declarations", type=Path, metavar="FILE", help="what the backend does not support (TOML)")
    made.add_argument("-n", "--workers", type=int, default=1, help="number of worker processes (default: 1)")
    made.add_argument("--patience", type=float, default=1.0, help="multiplies the time limits of checks")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE as JSON")
    made.add_argument("--html", type=Path, metavar="FILE", help="write the results to FILE as an HTML page")
    made.add_argument("--badge", type=Path, metavar="FILE", help="write an SVG badge with the level to FILE")
    made.add_argument(
        "--folder", type=folder, default=groups.CHECKS_FOLDER, help="a folder with other groups of checks"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    begin = time.monotonic()
    try:
        session = Session(
            options.device,
            options.setup,
            options.checks,
            options.level,
            options.declarations,
            options.workers,
            options.patience,
            options.folder,
        )
        summary = session.run(_progress)
    except (NothingToRun, BadDeclarations) as error:
        print(error, file=sys.stderr)
        return NOTHING_RAN
    except CannotStart as error:
        print(f"the backend cannot be loaded:\n{error}", file=sys.stderr)
        return NOTHING_RAN
    except KeyboardInterrupt:
        print("interrupted; the check processes were terminated", file=sys.stderr)
        return INTERRUPTED
    if options.json:
        json.write(summary, options.json)
    if options.html:
        options.html.write_text(html.page([summary]), encoding="utf-8")
    if options.badge:
        options.badge.write_text(badge.svg(summary), encoding="utf-8")
    print(terminal.text(summary, session.command()))
    print(f"{len(summary.results)} checks in {time.monotonic() - begin:.0f} seconds")
    return 1 if summary.failures() else 0


def _progress(result: Result) -> None:
    print(f"{result.seconds:6.1f} s  {result.verdict.value:14}  {result.id}", file=sys.stderr, flush=True)
