"""Runs the programs of ``tests/census`` for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CENSUS = Path(__file__).resolve().parents[1] / "census"


def run_census(tmp_path: Path, *options: str, program: str = "") -> list[dict[str, Any]]:
    """What the census found, or one of its programs (``"layouts.py"``). Fails if that is not what it expects."""
    # In a process of its own: the census forks, and a process that has used the device must not.
    output = tmp_path / "census.json"
    command = [sys.executable, CENSUS / program, *options, "--json", output]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    results: list[dict[str, Any]] = json.loads(output.read_text())
    return results
