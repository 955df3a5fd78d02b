"""The marker `openreg_fits`."""

from __future__ import annotations

from pathlib import Path

from suite import run_suite

SUITE = """
import pytest
import torch


def take(gib):
    return torch.empty(gib << 30, dtype=torch.uint8, device="openreg")


@pytest.mark.openreg(compute=False, memory="80GiB")
@pytest.mark.openreg_fits("t4")
def test_fits():
    take(12)


@pytest.mark.openreg(compute=False, memory="80GiB")
@pytest.mark.openreg_fits("t4")
def test_runs_out_of_memory():
    take(16)


@pytest.mark.openreg(compute=False, memory="80GiB")
@pytest.mark.openreg_fits("t4")
def test_catches_that_memory_ran_out():
    with pytest.raises(torch.OutOfMemoryError):
        take(16)
    take(8)


@pytest.mark.openreg_fits("t4")
def test_uses_no_memory():
    pass


@pytest.mark.openreg_fits("t40")
def test_names_an_unknown_gpu():
    pass
"""


def test_a_test_fails_if_its_work_does_not_fit(tmp_path: Path) -> None:
    result = run_suite(tmp_path, SUITE)
    assert result.outcomes == {
        "test_fits": "passed",
        "test_runs_out_of_memory": "failed",
        "test_catches_that_memory_ran_out": "passed",
        "test_uses_no_memory": "passed",
        "test_names_an_unknown_gpu": "failed",
    }
    failure = result.texts["test_runs_out_of_memory"]
    assert "OutOfMemoryError" in failure
    assert "does not fit on t4: peak 16.00 of 14.17 GiB" in failure
    assert "unknown profile (got 't40', expected one of t4, " in result.texts["test_names_an_unknown_gpu"]


def test_a_malformed_marker_ends_the_run(tmp_path: Path) -> None:
    for arguments in ("", "'t4', 'h100'", "gpu='t4'", "4"):
        source = f"import pytest\n@pytest.mark.openreg_fits({arguments})\ndef test_it(): pass"
        result = run_suite(tmp_path, source)
        assert result.status == 4
        assert "invalid openreg_fits: it takes one GPU, as in @pytest.mark.openreg_fits(" in result.output
