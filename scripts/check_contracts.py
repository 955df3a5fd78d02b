"""Checks that each contract in a header, a comment of `///` lines, stands alone.

The generated reference shows it with its declaration only, so a sentence must not go on in the next contract.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_CONTRACT = re.compile(r"(?:^ *///(?!<).*\n)+", re.M)
_DEPENDS = re.compile(r"(Of|That of|Those|These|Its|Their|The same|The others?|As above|Likewise|And|But|Or)\b")


def complaints(header: str) -> Iterator[tuple[int, str]]:
    """The line and the text of a complaint for each contract that does not stand alone."""
    for contract in _CONTRACT.finditer(header):
        lines = [line.strip().removeprefix("///").rstrip() for line in contract[0].splitlines()]
        first, last = lines[0].strip(), lines[-1]
        line = header.count("\n", 0, contract.start()) + 1
        if not last.startswith("  ") and not re.search(r"[.:?!)]$", last):  # or it ends with something laid out
            yield line + len(lines) - 1, f"the sentence does not end: {last.strip()}"
        if first[:1].islower():
            yield line, f"begins in a sentence: {first}"
        elif _DEPENDS.match(first):
            yield line, f"means nothing alone: {first}"


if __name__ == "__main__":
    found = [
        f"{header.relative_to(ROOT)}:{line}: {complaint}"
        for header in sorted((ROOT / "cpp").rglob("*.h"))
        for line, complaint in complaints(header.read_text())
    ]
    sys.exit("\n".join(found) or None)
