"""The pictures of the page, as SVG. Colours and sizes of text are in page.css. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .report import KINDS, Curve
from .verdict import size

WIDTH, HEIGHT = 960, 320
_LEFT, _BOTTOM, _TOP = 64, 36, 12  # for the labels of the axes
_CELLS = 72  # of a treemap


def kind_class(kind: str) -> str:
    """The class of page.css that has the colour of a kind."""
    return f"kind{KINDS.index(kind)}"


@dataclass(frozen=True)
class Line:
    """A level that is drawn across a curve, in bytes."""

    label: str
    at: int


def curve_chart(curve: Curve, levels: Sequence[Line]) -> str:
    """Memory by kind over the run, as a stacked area; the line above it is what the allocator has reserved."""
    count = len(curve.reserved)
    sums = map(sum, zip(*curve.kinds.values(), strict=True))
    highest = max([*curve.reserved, *sums, 1])
    shown = list(_apart(levels, 1.6 * highest))
    top = max([highest, *(level.at for level in shown)]) * 1.05

    def x(place: float) -> float:
        return _LEFT + (WIDTH - _LEFT) * place / max(count, 1)

    def y(bytes: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * bytes / top

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Memory by kind over the run">']
    for tick in _ticks(top):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="axis" x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{size(tick)}</text>')
    below = [0] * count
    for kind, heights in curve.kinds.items():
        above = [low + height for low, height in zip(below, heights, strict=True)]
        forth = [f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(above)]
        forth.append(f"{x(count):.1f},{y(above[-1] if above else 0):.1f}")
        back = [f"{x(place):.1f},{y(below[place]):.1f}" for place in reversed(range(count))]
        back.insert(0, f"{x(count):.1f},{y(below[-1] if below else 0):.1f}")
        title = f"<title>{escape(kind)}: at most {size(max(heights, default=0))}</title>"
        parts.append(f'<polygon class="{kind_class(kind)}" points="{" ".join([*forth, *back])}">{title}</polygon>')
        below = above
    reserved = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(curve.reserved))
    parts.append(f'<polyline class="reserved" points="{reserved}"><title>reserved by the allocator</title></polyline>')
    for level in shown:
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{WIDTH}" y1="{y(level.at):.1f}" y2="{y(level.at):.1f}"/>')
        parts.append(
            f'<text class="axis" x="{WIDTH - 4}" y="{y(level.at) - 4:.1f}" text-anchor="end">'
            f"{escape(level.label)}</text>"
        )
    for number, place in enumerate(curve.steps, 1):
        at = x(place + 1)
        parts.append(f'<line class="step" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="axis" x="{at - 4:.1f}" y="{HEIGHT - 16}" text-anchor="end">step {number}</text>')
    parts.append(
        f'<text class="axis" x="{WIDTH}" y="{HEIGHT - 2}" text-anchor="end">allocations and frees, in order</text>'
    )
    return "".join([*parts, "</svg>"])


def _apart(levels: Sequence[Line], most: float) -> Iterator[Line]:
    """Those whose labels do not overlap, and that do not flatten the curve, from the highest."""
    last = None
    for level in sorted(levels, key=lambda level: -level.at):
        if level.at <= most and (last is None or last - level.at > most / 16):
            last = level.at
            yield level


def _ticks(top: float) -> Iterator[float]:
    """Round numbers of GiB, MiB or KiB, about five."""
    unit = next((1 << shift for shift in (30, 20, 10) if top >= 2 << shift), 1)
    step = unit
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        step = factor * unit
        if top / step <= 6:
            break
    for number in range(int(top // step) + 1):
        yield number * step


def grouped(modules: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Modules with those below them, as deep as there is room for."""
    found = _at_depth(modules, 1)
    for depth in range(2, 2 + max((name.count(".") for name in modules), default=0)):
        deeper = _at_depth(modules, depth)
        if len(deeper) > _CELLS:
            break
        found = deeper
    return found


def _at_depth(modules: Mapping[str, Mapping[str, int]], depth: int) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, kinds in modules.items():
        group = found.setdefault(".".join(name.split(".")[:depth]), {})
        for kind, count in kinds.items():
            group[kind] = group.get(kind, 0) + count
    return found


def treemap(modules: Mapping[str, Mapping[str, int]]) -> str:
    """An area for each module, in the colour of the kind that it has most of."""
    groups = grouped(modules)
    weights = sorted(((sum(kinds.values()), name) for name, kinds in groups.items()), reverse=True)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Memory by module">']
    for (count, name), (left, top, width, height) in zip(weights, _squares(weights), strict=True):
        kinds = groups[name]
        kind = max(kinds, key=lambda each: kinds[each])
        label = name or "(no module)"
        detail = ", ".join(f"{each} {size(value)}" for each, value in sorted(kinds.items(), key=lambda item: -item[1]))
        parts.append(
            f'<g><title>{escape(label)}: {size(count)} ({escape(detail)})</title><rect class="{kind_class(kind)}" '
            f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        )
        room = int(width / 7) - 1  # letters
        if height > 16 and room >= 4:
            text = label if len(label) <= room else "…" + label[-(room - 1) :]
            parts.append(f'<text x="{left + 4:.1f}" y="{top + 14:.1f}">{escape(text)}</text>')
            if height > 32 and room >= 10:
                parts.append(f'<text x="{left + 4:.1f}" y="{top + 29:.1f}">{size(count)}</text>')
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _squares(weights: Sequence[tuple[int, str]]) -> Iterator[tuple[float, float, float, float]]:
    """Rectangles in the order of the weights, largest first, each as square as its neighbours allow (squarified)."""
    total = sum(count for count, _ in weights) or 1
    areas = [count * WIDTH * HEIGHT / total for count, _ in weights]
    left, top, width, height = 0.0, 0.0, float(WIDTH), float(HEIGHT)
    while areas:
        side = min(width, height) or 1.0
        row = 1
        while row < len(areas) and _worst(areas[: row + 1], side) <= _worst(areas[:row], side):
            row += 1
        thick = sum(areas[:row]) / side
        along = 0.0
        for area in areas[:row]:
            length = area / thick if thick else 0.0
            yield (left, top + along, thick, length) if height <= width else (left + along, top, length, thick)
            along += length
        if height <= width:
            left, width = left + thick, max(width - thick, 0.0)
        else:
            top, height = top + thick, max(height - thick, 0.0)
        del areas[:row]


def _worst(areas: Sequence[float], side: float) -> float:
    """The largest ratio of the sides of rectangles that share a side of this length."""
    thick = sum(areas) / side
    return max((max(thick / (area / thick), area / thick / thick) for area in areas if area > 0), default=1.0)
