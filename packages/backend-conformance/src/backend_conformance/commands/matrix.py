"""Writes a page with a column for each backend, from files that --json wrote.

Columns have the devices' names; files of devices that have one name, their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
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
    devices = Counter(each.device for each in summaries)
    columns = [
        dataclasses.replace(each, device=path.stem) if devices[each.device] > 1 else each
        for each, path in zip(summaries, options.results, strict=True)
    ]
    options.html.write_text(html.page(columns, options.pages), encoding="utf-8")
    return 0
