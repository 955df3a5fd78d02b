"""Results that several tests look at; the checks are not tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kit_runs

from backend_conformance.result import Result, Summary

collect_ignore = ["kit_checks"]


@pytest.fixture(scope="session")
def behaved() -> tuple[Summary, dict[str, Result]]:
    return kit_runs.run("behaved")
