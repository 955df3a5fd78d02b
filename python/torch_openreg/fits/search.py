"""Finds the largest value with which a program fits, by running it again and again. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .run import FitsError
from .verdict import Verdict, size

_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(\d+)\.\.(\d+)")


@dataclass(frozen=True)
class Range:
    """What is searched: ``batch_size=1..512``."""

    name: str
    low: int
    high: int


def parse(text: str) -> Range:
    """
    Raises:
        FitsError: `text` is malformed.
    """
    match = _FORM.fullmatch(text)
    if match is None or int(match[2]) < 1 or int(match[2]) >= int(match[3]):
        raise FitsError(
            f"--search is malformed (got {text!r}, expected NAME=LOW..HIGH with whole numbers from 1, LOW less than "
            "HIGH, as in batch_size=1..512)"
        )
    return Range(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True)
class Try:
    """A run with a value."""

    value: int
    verdict: Verdict


@dataclass(frozen=True)
class Found:
    """The result of a search: the largest value that fits (None: not even the lowest), and the runs in their order."""

    range: Range
    best: int | None
    tries: list[Try]


def search(range: Range, attempt: Callable[[int], Verdict]) -> Found:
    """Bisects a range. The ends are tried first.

    Raises:
        FitsError: the larger value does not need more memory, so the program does not depend on it.
    """
    tries: list[Try] = []

    def fits(value: int) -> bool:
        tries.append(Try(value, attempt(value)))
        return bool(tries[-1].verdict.fits)

    if not fits(range.low):
        return Found(range, None, tries)
    highest = fits(range.high)
    if highest and tries[1].verdict.needed <= tries[0].verdict.needed:
        raise FitsError(
            f"the program needs no more memory with {range.name}={range.high} than with {range.name}={range.low} "
            f"({size(tries[1].verdict.needed)} and {size(tries[0].verdict.needed)}): write {{{range.name}}} where its "
            f"arguments have the value, or let it read the environment variable {range.name}"
        )
    low, high = (range.high, range.high) if highest else (range.low, range.high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Found(range, low, tries)


def table(found: Found) -> list[str]:
    """The runs as text, by value. One that ran out of memory has not shown how much it needs."""
    lines = [f"{found.range.name:>12}  {'needs':>12}  fits"]
    for one in sorted(found.tries, key=lambda one: one.value):
        fits = bool(one.verdict.fits)
        needs = size(one.verdict.needed) if fits else f"> {size(one.verdict.usable)}"
        lines.append(f"{one.value:>12}  {needs:>12}  {'yes' if fits else 'no'}")
    return lines
