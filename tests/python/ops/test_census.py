"""PyTorch's operator database (op_db) on the device, compared with the CPU: the census in ``tests/census``.

Every run takes one entry in eight, each with one dtype and one further check, by a hash of the name (``in_slice`` in
``tests/census/entries.py``). All entries, with all dtypes and all checks:
``pytest -m "" tests/python/ops/test_census.py``.
What is excepted, unequal, or may make the host wait is listed in ``tests/census/expected.py``; the census fails where
the lists are wrong.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from censuses import run_census

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")


def equal(results: list[dict[str, Any]]) -> Counter[str]:
    """How many are equal, by check."""
    return Counter(result["check"] for result in results if result["status"] == "equal")


def test_one_entry_in_eight_equals_cpu(tmp_path):
    results = run_census(tmp_path, "--slice")
    counts = equal(results)
    assert counts["values"] >= 75, counts
    assert min(counts[check] for check in ("noncontiguous", "conj", "neg", "out", "errors")) >= 2, counts


def test_one_entry_in_sixteen_equals_cpu_each_time_it_is_called(tmp_path):
    results = run_census(tmp_path, "--slice", "--check", "repeats", "--samples", "1")
    assert equal(results)["repeats"] >= 30
    assert sum(result["samples"] for result in results) >= 60


@pytest.mark.full
@pytest.mark.timeout(900)
def test_one_entry_in_sixteen_gives_the_same_bits_in_a_graph(tmp_path):
    results = run_census(tmp_path, "--slice", "--check", "graphs")
    assert equal(results)["graphs"] >= 30
    assert sum(result["samples"] for result in results) >= 100


@pytest.mark.full
@pytest.mark.timeout(5400)
def test_every_entry_with_every_dtype_equals_cpu(tmp_path):
    results = run_census(tmp_path)
    counts = equal(results)
    assert counts["values"] >= 6000 and sum(counts.values()) >= 9000, counts
    dtypes = Counter(result["dtype"] for result in results if result["status"] == "equal" and result["samples"])
    # The one entry with bcomplex32, a dtype of torch 2.15, is left out.
    del dtypes["bcomplex32"]
    assert len(dtypes) == 20 and min(dtypes.values()) >= 3, dtypes
