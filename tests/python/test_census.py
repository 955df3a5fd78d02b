"""Every entry of PyTorch's operator database, float32, forward: the device against the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

# Unequal today, by name. An entry that becomes equal has to leave the list.
UNEQUAL = {
    "sparse.mm.reduce",  # sparse tensors have a dispatch key of their own, without kernels here
    "sparse.sampled_addmm",  # the same
    "to_sparse",  # refused: its result is sparse
}


def test_float32_forward_equals_cpu():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    try:
        from census import census, summary
    finally:
        sys.path.pop(0)
    results = census("float32")
    crashed = [result.name for result in results if result.status == "crashed"]
    unequal = {result.name for result in results if result.status == "unequal"}
    equal = [result.name for result in results if result.status == "equal"]
    print(summary(results))
    assert crashed == []
    assert unequal == UNEQUAL
    assert len(equal) >= 0.97 * (len(equal) + len(unequal))
