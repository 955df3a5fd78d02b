"""Writes a page with a column for each backend, from files that --json wrote."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..reports import html, json


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance matrix", description=__doc__)
    made.add_argument("results", type=Path, nargs="+", help="files that --json wrote")
    made.add_argument("--html", type=Path, required=True, metavar="FILE", help="the page to write")
    made.add_argument("--pages", default="", metavar="URL", help="where the pages that `pages` wrote are published")
    options = made.parse_args(arguments)
    try:
        summaries = [json.read(path) for path in options.results]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    options.html.write_text(html.page(summaries, options.pages), encoding="utf-8")
    return 0
