"""`tests/fidelity/memory.py` measures what operators and programs allocate, on a GPU or here, and compares."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "fidelity" / "memory.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=200
    )


@pytest.mark.full
def test_it_measures_operators_and_programs_and_compares(tmp_path):
    measured = run("openreg", "--only", "^(add|mlp)$")
    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    kib = 1 << 10
    # A sum of a small call: the result, the gradient of each argument, and the sum that begins the backward pass.
    assert figures["operators"]["add small"][0]["kept"] >= 3 * 512
    assert figures["operators"]["add large"][0]["kept"] > 4000 * kib
    assert len(figures["programs"]["mlp"]) == 2

    files = [tmp_path / "there.json", tmp_path / "here.json"]
    files[0].write_text(measured.stdout)
    files[1].write_text(measured.stdout)
    same = run("compare", *files)
    assert (same.returncode, same.stdout.strip()) == (0, "0 differ")
    figures["operators"]["add small"][1]["allocations"] += 1
    files[1].write_text(json.dumps(figures))
    changed = run("compare", *files)
    assert changed.returncode == 1
    assert changed.stdout.startswith("add small: ")
