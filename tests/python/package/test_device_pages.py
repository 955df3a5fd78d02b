"""docs/device/life-of-an-add.md and its drawing name functions that are in the sources."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs/device"


def names_of_ours(text: str) -> set[str]:
    """The parts of qualified names, as `StreamImpl::enqueue_run`, but for PyTorch's."""
    qualified = re.findall(r"\b(?:\w+::)+\w+", text)
    return {part for name in qualified if not name.startswith(("at::", "c10::")) for part in name.split("::")}


def test_the_functions_on_an_adds_way_are_in_the_sources():
    sources = "\n".join(file.read_text() for kind in ("*.h", "*.cpp") for file in (ROOT / "cpp").rglob(kind))
    there = set(re.findall(r"\w+", sources))
    named = names_of_ours((PAGES / "life-of-an-add.md").read_text()) | names_of_ours((PAGES / "add.svg").read_text())
    assert len(named) > 10
    assert named <= there
