"""Operators compute the same whatever the strides of their tensors are: `tests/census/layouts.py`, here by a slice, and
`out_forms.py`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from censuses import CENSUS, run_census

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")


@pytest.mark.timeout(300)
def test_one_entry_in_sixteen(tmp_path):
    results = run_census(tmp_path, "--slice", "--samples", "2", program="layouts.py")
    assert len(results) >= 30 and sum(result["samples"] for result in results) >= 700


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_entry(tmp_path):
    results = run_census(tmp_path, program="layouts.py")
    assert len(results) >= 600 and sum(result["samples"] for result in results) >= 60_000


@pytest.mark.timeout(300)
def test_one_form_with_outputs_in_sixteen(tmp_path):
    results = run_census(tmp_path, "--slice", program="out_forms.py")
    assert len(results) >= 20 and sum(result["samples"] for result in results) >= 700


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_form_with_outputs(tmp_path):
    results = run_census(tmp_path, program="out_forms.py")
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
