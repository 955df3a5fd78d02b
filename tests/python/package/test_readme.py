"""README.md: it is short, its program races as it says, and its measurements are those of docs/speed.md."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path

import pytest
from consoles import ConsolePage, Run
from documents import ROOT
from modules import load

PAGE = ConsolePage("../README.md")
runs = PAGE.runs()


def test_each_program_is_run():
    PAGE.check()


@pytest.mark.parametrize("command", PAGE.commands)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    assert "UnsynchronizedAccessError" in PAGE.printed(command, runs).stdout


def rows(text: str) -> set[tuple[str, ...]]:
    """The rows of tables that end in a ratio."""
    tables = re.findall(r"^\|(.*\|\s*\d+\.\d+\s*)\|$", text, re.M)
    return {tuple(cell.strip() for cell in row.split("|")) for row in tables}


def test_its_measurements_are_those_of_the_page_on_speed():
    quoted = rows(PAGE.text)
    assert len(quoted) == 5
    assert quoted <= rows((ROOT / "docs/speed.md").read_text())


@pytest.mark.parametrize(("lines", "words", "is_long"), [(120, 1000, False), (121, 121, True), (120, 1001, True)])
def test_a_readme_that_is_too_long_is_refused(tmp_path: Path, lines: int, words: int, is_long: bool):
    readme = tmp_path / "README.md"
    readme.write_text("word " * (words - lines) + "word\n" * lines)
    complaint = f"README.md: {lines} lines, {words} words (at most 120 and 1000); move text to docs"
    assert load("scripts/check_docs.py").long_readme(readme) == [complaint] * is_long
