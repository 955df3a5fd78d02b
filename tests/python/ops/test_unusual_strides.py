"""Operators compute the same whatever the strides of their tensors are: `tests/census/layouts.py`, here by a slice, and
`out_forms.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

CENSUS = Path(__file__).resolve().parents[2] / "census"


def sweep(tmp_path: Path, *options: str, script: str = "layouts.py") -> list[dict[str, Any]]:
    """What it found. Fails if that is not what it expects."""
    # In a process of its own: the sweep forks, and a process that has used the device must not.
    output = tmp_path / "layouts.json"
    run = subprocess.run(
        [sys.executable, CENSUS / script, *options, "--json", output],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results: list[dict[str, Any]] = json.loads(output.read_text())
    return results


@pytest.mark.timeout(300)
def test_one_entry_in_sixteen(tmp_path):
    results = sweep(tmp_path, "--slice", "--samples", "2")
    assert len(results) >= 30 and sum(result["samples"] for result in results) >= 700


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_entry(tmp_path):
    results = sweep(tmp_path)
    assert len(results) >= 600 and sum(result["samples"] for result in results) >= 60_000


@pytest.mark.timeout(300)
def test_one_form_with_outputs_in_sixteen(tmp_path):
    results = sweep(tmp_path, "--slice", script="out_forms.py")
    assert len(results) >= 20 and sum(result["samples"] for result in results) >= 700


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_form_with_outputs(tmp_path):
    results = sweep(tmp_path, script="out_forms.py")
    assert len(results) >= 450 and sum(result["samples"] for result in results) >= 15_000


@pytest.mark.timeout(300)
def test_the_sweep_finds_what_the_cpu_does_wrong(tmp_path):
    output = tmp_path / "layouts.json"
    only = "^(median|nn.functional.gelu|narrow_copy)$"
    command = [sys.executable, CENSUS / "layouts.py", "--device", "cpu", "--only", only, "--json", output]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    status = {result["name"]: result["status"] for result in json.loads(output.read_text())}
    assert status["median"] == status["nn.functional.gelu"] == "unequal"
    assert status["narrow_copy"] in ("unequal", "crashed")
