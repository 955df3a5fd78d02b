"""Draws the ratios that compare.py measured, as an SVG of bars on a logarithmic scale, light and dark."""

from __future__ import annotations

import math
from html import escape

from rounds import Report

WIDTH, LEFT, RIGHT = 800, 268, 56
ROW, GROUP_GAP, TOP, BOTTOM = 19, 24, 72, 40
# Light or dark, like the reader's system.
STYLE = """
text { fill: #24292f; font: 12px Helvetica, Arial, sans-serif }
text.title { font-size: 16px; font-weight: 600 }
text.group, text.faint { fill: #6e7781 }
text.group { font-weight: 600 }
.page { fill: #ffffff }
.faster, text.faster { fill: #2a8c82 }
.slower, text.slower { fill: #d98032 }
text.faster, text.slower { font-weight: 600 }
.grid { stroke: #e4e7ea }
.one { stroke: #6e7781 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  text.group, text.faint { fill: #9da7b1 }
  .page { fill: #0d1117 }
  .faster, text.faster { fill: #3fb0a4 }
  .grid { stroke: #30363d }
  .one { stroke: #9da7b1 }
}
"""


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


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
            rows.append(text(16, y - 5, group, kind="group"))
        ratio, one = result["ratio"], x_of(1)
        end = x_of(ratio)
        kind = "faster" if ratio < 1 else "slower"
        rows.append(text(LEFT, y + 13, name, "end"))
        left, width = min(one, end), max(abs(end - one), 1)
        place = f'x="{left:.1f}" y="{y + 3:.1f}" width="{width:.1f}" height="{ROW - 6}"'
        rows.append(f'<rect class="{kind}" {place} rx="1.5"/>')
        rows.append(text(end + (5 if ratio >= 1 else -5), y + 13, f"{ratio:.2f}", "start" if ratio >= 1 else "end"))
        y += ROW
    lines = []
    for power in range(low, high + 1):
        x = x_of(2.0**power)
        kind = "one" if power == 0 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y + 4:.1f}"/>')
        label = f"1/{2**-power}" if power < 0 else f"{2**power}"
        lines.append(text(x, TOP - 7, label, "middle", "faint"))
    machine = report["machine"]
    footer = f"{machine['processor']}, {machine['cores']} cores, torch {report['torch']}, {report['rounds']} rounds"
    height = y + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>',
            text(16, 26, "Time on openreg / time on the CPU backend", kind="title"),
            text(x_of(1) - 6, 46, "faster", "end", "faster"),
            text(x_of(1) + 6, 46, "slower", "start", "slower"),
            *lines,
            *rows,
            text(16, height - 14, footer, kind="faint"),
            "</svg>\n",
        ]
    )
