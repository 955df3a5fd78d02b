"""Runs of the kit on folders of checks, and on devices that are no accelerator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from backend_conformance.result import Result, Summary
from backend_conformance.session import Session

TESTS = Path(__file__).parent
CHECKS = TESTS / "kit_checks"


def run(
    *patterns: str, folder: Path = CHECKS, workers: int = 1, **options: object
) -> tuple[Summary, dict[str, Result]]:
    """Runs checks, and returns the results by id."""
    session = Session("cpu", patterns=patterns, folder=folder, workers=workers, **options)  # type: ignore[arg-type]
    summary = session.run(lambda result: None)
    return summary, {each.id: each for each in summary.results}


def command(*arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the kit's command."""
    return subprocess.run(
        [sys.executable, "-m", "backend_conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=directory,
    )
