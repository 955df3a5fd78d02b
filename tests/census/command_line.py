"""The command line that programs of the census share."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser(documentation: str | None, in_slice: str, samples: int | None = None) -> argparse.ArgumentParser:
    """`in_slice`: what ``--slice`` is. `samples`: of each entry, at most, without ``--samples``."""
    made = argparse.ArgumentParser(description=(documentation or "").splitlines()[0])
    made.add_argument("--slice", action="store_true", help=in_slice)
    made.add_argument("--only", default="", help="names that match this regular expression")
    made.add_argument("--jobs", type=int, default=2, help="processes at a time")
    made.add_argument("--json", type=Path, help="write all results there")
    if samples is not None:
        made.add_argument("--samples", type=int, default=samples, help="of each entry, at most")
    return made
