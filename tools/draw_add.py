#!/usr/bin/env python3
"""Draws docs/device/add.svg: the path of an add from Python to the kernel and back. Light and dark.

python tools/draw_add.py [FILE.svg]
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

WIDTH, BOX, STEP, TOP = 880, 54, 68, 64
LEFT, LEFT_WIDTH = 16, 390
QUEUE, QUEUE_WIDTH = 452, 92
RIGHT, RIGHT_WIDTH = 590, 274

Box = tuple[str, str, str]  # class, function, action

CALLER: list[Box] = [
    ("torch", "a + b", "Tensor.__add__: reads the arguments, releases the GIL"),
    ("torch", "at::_ops::add_Tensor::call", "the dispatcher: highest key first"),
    ("torch", "AutogradPrivateUse1", "records AddBackward0 if a gradient is needed"),
    ("ours", "PrivateUse1: Structured<...>::functional", "ArgumentWriter writes arguments and signature"),
    ("ours", "PlanCache::find", "first call: meta function and probe make the plan"),
    ("ours", "make_result", "a block of the current stream's memory, without waiting"),
    ("ours", "ops::submit, backend::submit, Stream::submit", "copies the command into the queue"),
    ("torch", "c", "returned; Python continues"),
    ("ours", "c.item(): wait_for_device", "Stream::synchronize runs remaining commands, then reads"),
]
RUNNER: list[Box] = [
    ("ours", "Turn::step", "takes the next record"),
    ("ours", "CleanState", "no modes, no autograd, no autocast"),
    ("ours", "OpKernel::run_body", "tensors over the aperture"),
    ("torch", "at::cpu::add_outf", "the CPU's kernel"),
    ("ours", "head + 1", "fences fire, waiting threads wake"),
]
FIRST_OF_RUNNER = 3  # the step of the caller beside which the runner's steps begin
SUBMIT, WAIT = 6, 8

STYLE = """
text { fill: #24292f; font: 12px Helvetica, Arial, sans-serif }
.name { font: 600 12px ui-monospace, Menlo, Consolas, monospace }
.head { font-size: 14px; font-weight: 600 }
.page { fill: #ffffff }
.torch { fill: #fdeadd; stroke: #d98032 }
.ours { fill: #dff1ef; stroke: #2a8c82 }
.queue { fill: #f3f4f6; stroke: #8c959f }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
.tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .page { fill: #0d1117 }
  .torch { fill: #3d2712; stroke: #d98032 }
  .ours { fill: #12332f; stroke: #3fb0a4 }
  .queue { fill: #21262d; stroke: #8b949e }
  .arrow { stroke: #9da7b1 }
  .tip { fill: #9da7b1 }
}
"""


def box(x: float, y: float, width: float, number: int, content: Box) -> str:
    """A numbered step."""
    kind, name, does = content
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{BOX}" rx="5"/>'
        f'<text class="name" x="{x + 10}" y="{y + 22}">{number} {escape(name)}</text>'
        f'<text x="{x + 10}" y="{y + 41}">{escape(does)}</text>'
    )


def arrow(*points: tuple[float, float]) -> str:
    """A line through the points, with a tip at the last."""
    path = " L ".join(f"{x} {y}" for x, y in points)
    return f'<path class="arrow" d="M {path}" marker-end="url(#tip)"/>'


def draw() -> str:
    """The picture."""
    middle = BOX / 2
    y_of = [TOP + STEP * step for step in range(len(CALLER))]
    y_runner = [TOP + STEP * (FIRST_OF_RUNNER + step) for step in range(len(RUNNER))]
    parts = []
    for x, title in ((LEFT, "the calling thread"), (QUEUE, "the stream"), (RIGHT, "an engine, or a waiting host")):
        parts.append(f'<text class="head" x="{x}" y="{TOP - 18}">{title}</text>')
    for number, (y, content) in enumerate(zip(y_of, CALLER, strict=True)):
        shown = number + 1 if number < WAIT else number + 1 + len(RUNNER)
        parts.append(box(LEFT, y, LEFT_WIDTH, shown, content))
        if number:
            parts.append(arrow((LEFT + LEFT_WIDTH / 2, y - STEP + BOX), (LEFT + LEFT_WIDTH / 2, y - 3)))
    for number, (y, content) in enumerate(zip(y_runner, RUNNER, strict=True)):
        parts.append(box(RIGHT, y, RIGHT_WIDTH, WAIT + 1 + number, content))
        if number:
            parts.append(arrow((RIGHT + RIGHT_WIDTH / 2, y - STEP + BOX), (RIGHT + RIGHT_WIDTH / 2, y - 3)))
    first, last = y_runner[0] + 8, y_of[SUBMIT] + middle + 18
    cells = 6
    height = (last - first) / cells
    for cell in range(cells):
        top = first + height * cell
        parts.append(f'<rect class="queue" x="{QUEUE}" y="{top}" width="{QUEUE_WIDTH}" height="{height - 5}" rx="3"/>')
    label = first + height * (cells - 1) + height / 2 + 2
    parts.append(f'<text class="name" x="{QUEUE + 7}" y="{label}">add.Tensor</text>')
    # Into the queue, out of its other end, and back to the waiting host.
    parts.append(arrow((LEFT + LEFT_WIDTH, y_of[SUBMIT] + middle), (QUEUE - 3, y_of[SUBMIT] + middle)))
    parts.append(arrow((QUEUE + QUEUE_WIDTH, y_runner[0] + middle), (RIGHT - 3, y_runner[0] + middle)))
    end, wait = RIGHT + RIGHT_WIDTH / 2, y_of[WAIT] + middle
    parts.append(arrow((end, y_runner[-1] + BOX), (end, wait), (LEFT + LEFT_WIDTH + 3, wait)))
    total = y_of[-1] + BOX + 44
    legend = total - 26
    parts.append(f'<rect class="torch" x="{LEFT}" y="{legend}" width="14" height="14" rx="3"/>')
    parts.append(f'<text x="{LEFT + 22}" y="{legend + 12}">PyTorch</text>')
    parts.append(f'<rect class="ours" x="{LEFT + 96}" y="{legend}" width="14" height="14" rx="3"/>')
    parts.append(f'<text x="{LEFT + 118}" y="{legend + 12}">torch_openreg</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="tip" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
            f'<rect class="page" width="{WIDTH}" height="{total}"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    default = Path(__file__).resolve().parent.parent / "docs/device/add.svg"
    (Path(sys.argv[1]) if len(sys.argv) > 1 else default).write_text(draw())
