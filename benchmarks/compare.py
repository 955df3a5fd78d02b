#!/usr/bin/env python3
"""Times openreg against PyTorch's CPU backend.

    python benchmarks/compare.py [--rounds 5] [--case REGEX] [--json FILE] [--picture FILE] [--anyway]

For each case it prints the medians over the rounds, the ratio openreg / CPU of the medians (below 1 openreg is faster)
and the spreads. On a busy machine it does not measure (exit status 3). The cases are in cases.py, and the
measurement is in rounds.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cases
import picture
import rounds


def main() -> int:
    parser = rounds.parser(__doc__)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the ratios to this SVG file")
    options = parser.parse_args()
    report = rounds.run(cases.groups(), options)
    if report and options.picture:
        options.picture.write_text(picture.draw(report))
    return 0 if report or options.measure else 3


if __name__ == "__main__":
    sys.exit(main())
