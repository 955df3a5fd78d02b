#!/usr/bin/env python3
"""Draws the ratios of a JSON file that compare.py wrote, as an SVG of bars on a logarithmic scale.

python benchmarks/picture.py FILE.json FILE.svg
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import cast

from rounds import Report

WIDTH, LEFT, RIGHT = 800, 268, 56
ROW, GROUP_GAP, TOP, BOTTOM = 19, 24, 72, 40
FASTER, SLOWER, TEXT, FAINT, GRID = "#2a8c82", "#d98032", "#24292f", "#6e7781", "#e4e7ea"


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = TEXT, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" {style}>{escape(content)}</text>'


def draw(report: Report) -> str:
    """Draws bars from 1: to the left if openreg is faster, to the right if it is slower."""
    ratios = [result["ratio"] for result in report["cases"].values()]
    low = min(-1, math.floor(math.log2(min(ratios))))
    high = max(1, math.ceil(math.log2(max(ratios))))

    def x_of(ratio: float) -> float:
        return LEFT + 36 + (math.log2(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT - 36)

    rows: list[str] = []
    y = float(TOP)
    group = ""
    for name, result in report["cases"].items():
        if result["group"] != group:
            group = result["group"]
            y += GROUP_GAP
            rows.append(text(16, y - 5, group, colour=FAINT, style='font-weight="600"'))
        ratio, one = result["ratio"], x_of(1)
        end = x_of(ratio)
        colour = FASTER if ratio < 1 else SLOWER
        rows.append(text(LEFT, y + 13, name, "end"))
        bar = f'<rect x="{min(one, end):.1f}" y="{y + 3:.1f}" width="{max(abs(end - one), 1):.1f}" height="{ROW - 6}"'
        rows.append(f'{bar} rx="1.5" fill="{colour}"/>')
        rows.append(text(end + (5 if ratio >= 1 else -5), y + 13, f"{ratio:.2f}", "start" if ratio >= 1 else "end"))
        y += ROW
    lines = []
    for power in range(low, high + 1):
        x = x_of(2.0**power)
        stroke = FAINT if power == 0 else GRID
        lines.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y + 4:.1f}" stroke="{stroke}"/>')
        label = f"1/{2**-power}" if power < 0 else f"{2**power}"
        lines.append(text(x, TOP - 7, label, "middle", FAINT))
    machine = report["machine"]
    footer = f"{machine['processor']}, {machine['cores']} cores, torch {report['torch']}, {report['rounds']} rounds"
    height = y + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            text(16, 26, "Time on openreg / time on the CPU backend", style='font-size="16" font-weight="600"'),
            text(x_of(1) - 6, 46, "faster", "end", FASTER, 'font-weight="600"'),
            text(x_of(1) + 6, 46, "slower", "start", SLOWER, 'font-weight="600"'),
            *lines,
            *rows,
            text(16, height - 14, footer, colour=FAINT),
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("svg", type=Path)
    options = parser.parse_args()
    options.svg.write_text(draw(cast(Report, json.loads(options.json.read_text()))))


if __name__ == "__main__":
    main()
