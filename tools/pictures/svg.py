"""What the pictures share: colours in light and dark, boxes, arrows, the file."""

from __future__ import annotations

from html import escape

# The colours follow the reader's system, on GitHub and on the site.
STYLE = """
text { fill: #24292f; font: 12px Helvetica, Arial, sans-serif }
.name { font: 600 12px ui-monospace, Menlo, Consolas, monospace }
.head { font-size: 14px; font-weight: 600 }
.faint { fill: #57606a }
.page { fill: #ffffff }
.torch { fill: #fdeadd; stroke: #d98032 }
.ours { fill: #dff1ef; stroke: #2a8c82 }
.plain { fill: #f3f4f6; stroke: #8c959f }
.bad { fill: #fde4e4; stroke: #c2413b }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
.line { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
.tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .faint { fill: #9da7b1 }
  .page { fill: #0d1117 }
  .torch { fill: #3d2712; stroke: #d98032 }
  .ours { fill: #12332f; stroke: #3fb0a4 }
  .plain { fill: #21262d; stroke: #8b949e }
  .bad { fill: #3d1614; stroke: #e5645d }
  .arrow { stroke: #9da7b1 }
  .line { stroke: #8b949e }
  .tip { fill: #9da7b1 }
}
"""


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text; `kind` are classes of the style."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>'


def rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    """A box without text."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def box(kind: str, x: float, y: float, width: float, height: float, name: str, *lines: str) -> str:
    """A box with a name and lines that explain it."""
    rows = [text(x + 10, y + 22, name, "name")]
    rows += [text(x + 10, y + 41 + 16 * number, line) for number, line in enumerate(lines)]
    return rectangle(kind, x, y, width, height) + "".join(rows)


def arrow(*points: tuple[float, float]) -> str:
    """A line through the points, with a tip at the last."""
    path = " L ".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path class="arrow" d="M {path}" marker-end="url(#tip)"/>'


def picture(title: str, width: int, height: int, parts: list[str]) -> str:
    """The file."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="tip" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
            f'<rect class="page" width="{width}" height="{height}"/>',
            *parts,
            "</svg>\n",
        ]
    )
