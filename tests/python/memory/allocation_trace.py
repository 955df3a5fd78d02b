"""Reads recorded allocations: what tests/data/record_transformer_allocations.py writes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRANSFORMER = Path(__file__).parents[2] / "data" / "transformer_allocations.txt.gz"


class Event(NamedTuple):
    block: int  # numbered in the order of their allocations
    bytes: int  # 0: the block is freed


def events(path: Path = TRANSFORMER) -> Iterator[Event]:
    """The events of a recording, in their order."""
    with gzip.open(path, "rt") as lines:
        for line in lines:
            kind, block, *size = line.split()
            yield Event(int(block), int(size[0]) if kind == "a" else 0)
