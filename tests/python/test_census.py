"""PyTorch's operator database (op_db) on the device, compared with the CPU.

Every run takes one entry in four with one of five dtypes, by a hash of the name (``in_slice`` in ``tests/census.py``).
All entries with all five dtypes: ``pytest -m "" tests/python/test_census.py``.
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

CENSUS = Path(__file__).resolve().parents[1] / "census.py"

SPARSE = "sparse tensors have a dispatch key of their own, without kernels here"
SPARSE_RESULT = "refused: its result is sparse"

# All that is unequal, by dtype and name, with the reason. An entry that becomes equal has to leave the list.
UNEQUAL: dict[str, dict[str, str]] = {
    "float32": {
        "sparse.mm.reduce": SPARSE,
        "sparse.sampled_addmm": SPARSE,
        "to_sparse": SPARSE_RESULT,
    },
    "bfloat16": {
        "nn.functional.linear_cross_entropy.chunked_none": (
            "PyTorch chooses by the device how to accumulate: in float32 on the CPU, in bfloat16 where it knows none"
        ),
        "sparse.mm.reduce": SPARSE,
        "to_sparse": SPARSE_RESULT,
    },
    "int64": {"to_sparse": SPARSE_RESULT},
    "bool": {"to_sparse": SPARSE_RESULT},
    "complex64": {"sparse.sampled_addmm": SPARSE, "to_sparse": SPARSE_RESULT},
}


def census(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    # In a process of its own: the census forks, and a process that has used the device must not.
    output = tmp_path / "census.json"
    run = subprocess.run(
        [sys.executable, CENSUS, *options, "--json", output],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    print(run.stdout)
    assert output.exists(), run.stderr
    results: list[dict[str, Any]] = json.loads(output.read_text())
    return results


def assert_unequal_are_those_of_the_list(results: list[dict[str, Any]]) -> None:
    assert [r["name"] for r in results if r["status"] == "crashed"] == []
    judged = {(r["dtype"], r["name"]) for r in results if r["status"] in ("equal", "unequal")}
    unequal = {(r["dtype"], r["name"]) for r in results if r["status"] == "unequal"}
    assert unequal == judged & {(dtype, name) for dtype, names in UNEQUAL.items() for name in names}


def test_one_entry_in_four_equals_cpu(tmp_path):
    results = census(tmp_path, "--slice")
    assert_unequal_are_those_of_the_list(results)
    equal = Counter(r["dtype"] for r in results if r["status"] == "equal")
    assert sum(equal.values()) >= 140 and min(equal[dtype] for dtype in UNEQUAL) >= 10, equal


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("dtype", "backward", "share"),
    [
        ("float32", True, 0.99),
        ("bfloat16", False, 0.98),
        ("int64", False, 0.98),
        ("bool", False, 0.98),
        ("complex64", False, 0.98),
    ],
)
def test_every_entry_equals_cpu_but_those_of_the_list(tmp_path, dtype, backward, share):
    results = census(tmp_path, "--dtype", dtype, *(["--backward"] if backward else []))
    assert_unequal_are_those_of_the_list(results)
    assert {r["name"] for r in results if r["status"] == "unequal"} == set(UNEQUAL[dtype])
    counts = Counter(r["status"] for r in results)
    assert counts["equal"] >= 300
    assert counts["equal"] >= share * (counts["equal"] + counts["unequal"])
