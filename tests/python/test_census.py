"""Every entry of PyTorch's operator database, float32, forward: the device against the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

CENSUS = Path(__file__).resolve().parents[1] / "census.py"

# Unequal today, by name. An entry that becomes equal has to leave the list.
UNEQUAL = {
    "sparse.mm.reduce",  # sparse tensors have a dispatch key of their own, without kernels here
    "sparse.sampled_addmm",  # the same
    "to_sparse",  # refused: its result is sparse
}


def test_float32_forward_equals_cpu(tmp_path):
    # In a process of its own: the census forks, and a process that has used the device must not.
    output = tmp_path / "census.json"
    run = subprocess.run(
        [sys.executable, CENSUS, "--dtype", "float32", "--json", output],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    names: dict[str, set[str]] = {"equal": set(), "unequal": set(), "crashed": set()}
    for result in json.loads(output.read_text()):
        names.setdefault(result["status"], set()).add(result["name"])
    assert names["crashed"] == set()
    assert names["unequal"] == UNEQUAL
    assert len(names["equal"]) >= 0.97 * (len(names["equal"]) + len(names["unequal"]))
