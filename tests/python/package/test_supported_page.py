"""docs/supported.md: its tables name tests that there are, and agree with the lists of the census."""

from __future__ import annotations

import importlib
import re
import sys

import pytest
import torch
from documents import DOCUMENTS, ROOT

PAGE = (DOCUMENTS / "supported.md").read_text()


@pytest.fixture(scope="module")
def expected():
    sys.path.insert(0, str(ROOT / "tests/census"))
    yield importlib.import_module("expected")
    sys.path.remove(str(ROOT / "tests/census"))


def rows_of(heading: str) -> list[list[str]]:
    """The cells of a section's table."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", [line for line in PAGE.splitlines() if re.search(r"\| (?:yes|partly|no) \|", line)])
def test_a_row_has_a_reason_and_a_test(row):
    _, feature, status, reason, tests, _ = (cell.strip() for cell in row.split("|"))
    assert feature
    assert reason or status == "yes"
    assert tests or status == "no"
    for test in re.findall(r"`([^`]+)`", tests):
        assert (ROOT / "tests/python" / test).is_file(), test


def test_differences_are_those_that_the_census_expects(expected):
    shown = {
        (name, check)
        for names, checks, _ in rows_of("Differences from the CPU, by operator")
        for name in re.findall(r"`([^`]+)`", names)
        for check in re.findall(r"(\w+) \(", checks)
    }
    assert shown == {(name, check) for name, check, _ in expected.UNEQUAL_CASES}


def test_waits_are_those_that_the_census_expects(expected):
    shown = [
        name
        for names, _ in rows_of("Operators with implicit synchronization")
        for name, until in re.findall(r"`([^`]+)`(?: \(before torch ([\d.]+)\))?", names)
        if not until or torch.__version__ < until
    ]
    assert sorted(shown) == sorted(expected.WAITING)
