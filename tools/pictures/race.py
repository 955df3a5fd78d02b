"""The race of the README's quick start, and the report that the README quotes."""

from __future__ import annotations

import re
from pathlib import Path

from svg import arrow, picture, rectangle, text

README = Path(__file__).resolve().parents[2] / "README.md"
WIDTH = 880
LANES = {"host": 30, "stream 0": 84, "stream 1": 138}
LINE, CHARACTER = 17, 7.22  # of the terminal's font


def _command(lane: str, x: float, width: float, kind: str, name: str) -> str:
    y = LANES[lane] - 16
    return rectangle(kind, x, y, width, 32) + text(x + width / 2, y + 20, name, "name", "middle")


def _terminal(quoted: str, top: float) -> tuple[list[str], float]:
    """The lines of a console in a box, and where it ends."""
    lines = [line.removesuffix(" ...") for line in quoted.splitlines()]
    rows = []
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        rows.append(text(34 + indent * CHARACTER, top + 24 + number * LINE, line.lstrip(), "name"))
    height = len(lines) * LINE + 20
    return [rectangle("plain", 16, top, WIDTH - 32, height), *rows], top + height


def draw() -> str:
    """The picture."""
    (quoted,) = re.findall(r"^```console\n(.*?RACES.*?)^```", README.read_text(), re.M | re.S)
    terminal, end = _terminal(quoted, 174)
    parts = [text(24, y + 4, lane, "head") for lane, y in LANES.items()]
    parts += [f'<path class="line" d="M 104 {y} L {WIDTH - 24} {y}"/>' for y in LANES.values()]
    parts += [
        arrow((200, LANES["host"] + 16), (250, LANES["stream 0"] - 18)),
        arrow((420, LANES["host"] + 16), (420, LANES["stream 1"] - 18)),
        _command("host", 116, 200, "torch", "batch = torch.zeros(1000)"),
        _command("host", 340, 160, "torch", "total = batch.sum()"),
        _command("stream 0", 236, 330, "bad", "zero_ writes batch"),
        _command("stream 1", 370, 170, "bad", "sum reads batch"),
        text(590, LANES["stream 0"] + 31, "unsynchronized: the sum may read too early", "faint"),
        *terminal,
    ]
    return picture("A race between two streams, and its report", WIDTH, round(end) + 16, parts)
