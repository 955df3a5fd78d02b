"""PyTorch's operator database (op_db) on the device, compared with the CPU: the census in ``tests/census``.

Every run takes one entry in eight, each with one dtype and one further check, by a hash of the name (``in_slice`` in
``tests/census/entries.py``). All entries, with all dtypes and all checks:
``pytest -m "" tests/python/ops/test_census.py``.
What is excepted, unequal, or may make the host wait is listed in ``tests/census/expected.py``; the census fails where
the lists are wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

CENSUS = Path(__file__).resolve().parents[2] / "census"


def census(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    """What it found. Fails if that is not what it expects."""
    # In a process of its own: the census forks, and a process that has used the device must not.
    output = tmp_path / "census.json"
    run = subprocess.run(
        [sys.executable, CENSUS, *options, "--json", output], cwd=tmp_path, capture_output=True, text=True
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    results: list[dict[str, Any]] = json.loads(output.read_text())
    return results


def equal(results: list[dict[str, Any]]) -> Counter[str]:
    """How many are equal, by check."""
    return Counter(result["check"] for result in results if result["status"] == "equal")


def test_one_entry_in_eight_equals_cpu(tmp_path):
    results = census(tmp_path, "--slice")
    counts = equal(results)
    assert counts["values"] >= 75, counts
    assert min(counts[check] for check in ("noncontiguous", "conj", "neg", "out", "errors")) >= 2, counts


def test_one_entry_in_sixteen_equals_cpu_each_time_it_is_called(tmp_path):
    results = census(tmp_path, "--slice", "--check", "repeats", "--samples", "1")
    assert equal(results)["repeats"] >= 30
    assert sum(result["samples"] for result in results) >= 60


@pytest.mark.full
@pytest.mark.timeout(900)
def test_one_entry_in_sixteen_gives_the_same_bits_in_a_graph(tmp_path):
    results = census(tmp_path, "--slice", "--check", "graphs")
    assert equal(results)["graphs"] >= 30
    assert sum(result["samples"] for result in results) >= 100


@pytest.mark.full
@pytest.mark.timeout(5400)
def test_every_entry_with_every_dtype_equals_cpu(tmp_path):
    results = census(tmp_path)
    counts = equal(results)
    assert counts["values"] >= 6000 and sum(counts.values()) >= 9000, counts
    dtypes = Counter(result["dtype"] for result in results if result["status"] == "equal" and result["samples"])
    # The one entry with bcomplex32, a dtype of torch 2.15, is left out.
    del dtypes["bcomplex32"]
    assert len(dtypes) == 20 and min(dtypes.values()) >= 3, dtypes
