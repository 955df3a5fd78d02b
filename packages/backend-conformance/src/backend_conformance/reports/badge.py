"""The level as a badge for a README."""

from __future__ import annotations

from html import escape

from ..result import Summary

_LABEL = "PyTorch conformance"
_COLOURS = {
    "none": "#b32424",
    "boots": "#a15c00",
    "trains": "#6b6f00",
    "asynchronous": "#2f7a1f",
    "complete": "#1a7f37",
}
_CHARACTER = 6.6  # width of an average character of the font, in pixels


def svg(summary: Summary) -> str:
    level = summary.level or "some checks"
    left, right = (round(len(text) * _CHARACTER) + 12 for text in (_LABEL, level))
    title = escape(f"{_LABEL}: {level} ({summary.device}, torch {summary.torch})")
    colour = _COLOURS.get(level, "#555")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{_LABEL}</text>'
        f'<text x="{left + right / 2}" y="14">{escape(level)}</text></g></svg>\n'
    )
