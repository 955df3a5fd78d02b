"""Runs a small test suite in a separate process and returns the outcome of each test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# Without that of the worker which this test may run in: its fixtures would take themselves for that worker's.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}


@dataclass
class Result:
    status: int
    output: str
    outcomes: dict[str, str]
    """By test: passed, failed (in the call), error (in setup or teardown), skipped."""
    texts: dict[str, str]
    """By test: the report of a failure or a skip, and the captured output."""


def run_suite(folder: Path, source: str, *options: str, **variables: str) -> Result:
    """Runs `source` as a test module in `folder`."""
    (folder / "test_inner.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\njunit_logging = all\n")
    log = folder / "log.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={log}", *options, str(folder)]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, env={**ENVIRONMENT, **variables}
    )
    outcomes: dict[str, str] = {}
    texts: dict[str, str] = {}
    for case in ElementTree.parse(log).iter("testcase") if log.exists() else ():
        name = case.attrib["name"]
        kinds = {part.tag: part for part in case}
        outcomes[name] = next((word for tag, word in _OUTCOMES.items() if tag in kinds), outcomes.get(name, "passed"))
        texts[name] = texts.get(name, "") + "\n".join(
            f"{part.attrib.get('message', '')}\n{part.text or ''}" for part in case
        )
    return Result(result.returncode, result.stdout + result.stderr, outcomes, texts)


_OUTCOMES = {"failure": "failed", "error": "error", "skipped": "skipped"}


def has(text: str, *patterns: str) -> bool:
    """Whether the text contains all patterns, in this order."""
    return re.search(".*?".join(patterns), text, re.DOTALL) is not None
