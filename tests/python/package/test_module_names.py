"""Modules of tests are imported by their file's name, from one path: those of the packages, too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_two_modules_of_tests_have_one_name() -> None:
    """A child process that unpickles a function of `test_name` imports the first module of that name."""
    folders = [ROOT / "tests/python", *ROOT.glob("packages/*/tests")]
    names = Counter(file.name for folder in folders for file in folder.rglob("*.py"))
    assert names.pop("conftest.py") > 1
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []
