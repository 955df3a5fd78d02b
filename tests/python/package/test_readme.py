"""README.md: it is short, and its measurements are those of docs/speed.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT
from modules import load


def rows(text: str) -> set[tuple[str, ...]]:
    """The rows of tables that end in a ratio."""
    tables = re.findall(r"^\|(.*\|\s*\d+\.\d+\s*)\|$", text, re.M)
    return {tuple(cell.strip() for cell in row.split("|")) for row in tables}


def test_its_measurements_are_those_of_the_page_on_speed():
    quoted = rows((ROOT / "README.md").read_text())
    assert len(quoted) == 5
    assert quoted <= rows((ROOT / "docs/speed.md").read_text())


@pytest.mark.parametrize(("lines", "words", "is_long"), [(120, 1000, False), (121, 121, True), (120, 1001, True)])
def test_a_readme_that_is_too_long_is_refused(tmp_path: Path, lines: int, words: int, is_long: bool):
    readme = tmp_path / "README.md"
    readme.write_text("word " * (words - lines) + "word\n" * lines)
    complaint = f"README.md: {lines} lines, {words} words (at most 120 and 1000); move text to docs"
    assert load("scripts/check_docs.py").long_readme(readme) == [complaint] * is_long
