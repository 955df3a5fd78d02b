"""Faults on purpose in tests, and tests whose allocations fail one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite import run_suite

MARKED = """
import pytest
import torch


def allocate():
    return torch.ones(10, device="openreg")


@pytest.fixture
def made():
    return allocate()


@pytest.mark.openreg_fault("oom@allocation:2")
def test_handles_it(made):
    allocate()
    with pytest.raises(torch.OutOfMemoryError):
        allocate()


@pytest.mark.openreg_fault("oom@allocation:2")
def test_does_not_get_there():
    allocate()


@pytest.mark.openreg_fault("oom@allocation:1", "slow@launch:1=1ms")
def test_fails():
    allocate()


@pytest.mark.openreg_fault("error@launch:1")
def test_does_not_collect_the_error():
    allocate()


@pytest.mark.openreg_fault("lost@launch:1")
def test_loses_the_device():
    with pytest.raises(torch.AcceleratorError):
        allocate()


def test_has_a_device_and_no_fault():
    assert allocate().sum().item() == 10
"""


def test_a_marker_injects_faults_into_its_test_only(tmp_path: Path):
    result = run_suite(tmp_path, MARKED, "--openreg")
    assert result.outcomes == {
        "test_handles_it": "passed",
        "test_does_not_get_there": "failed",
        "test_fails": "failed",
        "test_does_not_collect_the_error": "failed",
        "test_loses_the_device": "passed",
        "test_has_a_device_and_no_fault": "passed",
    }
    never = "openreg: faults that never occurred in the test:\n  oom@allocation:2 (1 counted)"
    assert never in result.texts["test_does_not_get_there"]
    assert "injected fault (oom@allocation:1)" in result.texts["test_fails"]
    assert "injected fault (error@launch:1)" in result.texts["test_does_not_collect_the_error"]


@pytest.mark.parametrize("specification", ['"oom@launch:1"', "3", "", '"error@launch", times=2'])
def test_a_malformed_fault_ends_the_run(tmp_path: Path, specification: str):
    source = f"import pytest\n\n@pytest.mark.openreg_fault({specification})\ndef test(): pass\n"
    result = run_suite(tmp_path, source)
    assert result.status == 4 and "invalid openreg_fault" in result.output


def test_errors_that_stick_stay_in_their_test(tmp_path: Path):
    source = """
import pytest
import torch


def fail():
    torch.ones(3, device="openreg")[torch.tensor([7], device="openreg")]


def test_raises_it():
    fail()
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError):
            torch.openreg.synchronize()


def test_does_not_raise_it():
    fail()


def test_is_not_affected():
    torch.ones(3, device="openreg").sum().item()
"""
    result = run_suite(tmp_path, source, "--openreg", TORCH_OPENREG_STICKY_ERRORS="1")
    assert result.outcomes == {
        "test_raises_it": "passed",
        "test_does_not_raise_it": "failed",
        "test_is_not_affected": "passed",
    }
    assert "out of bounds" in result.output


SWEPT = """
import torch

kept = []


def twice(x):
    return x * 2


def test_leaves_nothing(openreg):
    assert twice(twice(torch.ones(1000, device=openreg))).sum().item() == 4000


def test_keeps_what_it_has_made(openreg):
    kept.clear()
    kept.append(torch.ones(1000, device=openreg))
    twice(kept[0])
    kept.clear()


def test_leaves_its_stream_current(openreg):
    before = torch.openreg.current_stream()
    torch.openreg.set_stream(torch.openreg.Stream())
    torch.ones(1000, device=openreg)
    torch.openreg.set_stream(before)


def test_handles_it(openreg):
    try:
        twice(torch.ones(1000, device=openreg))
    except torch.OutOfMemoryError:
        pass


def test_fails_anyway(openreg):
    raise ValueError
"""


def test_a_sweep_finds_what_a_failing_allocation_leaves_behind(tmp_path: Path):
    result = run_suite(tmp_path, SWEPT, "--openreg-oom-sweep")
    assert result.outcomes == {
        "test_leaves_nothing": "passed",
        "test_keeps_what_it_has_made": "failed",
        "test_leaves_its_stream_current": "failed",
        "test_handles_it": "passed",
        "test_fails_anyway": "failed",
    }
    report = result.texts["test_keeps_what_it_has_made"]
    assert "openreg: if an allocation fails, the test leaves something behind:\n  allocation 2 of 2:\n" in report
    assert "    4096 bytes of openreg:0 are still in use\n" in report
    assert "4000 bytes, allocated at " in report and "in test_keeps_what_it_has_made" in report
    assert "of openreg:0 is still current (it was 0)" in result.texts["test_leaves_its_stream_current"]


def test_the_number_of_runs_can_be_limited(tmp_path: Path):
    source = """
import torch

runs = 0


def test(openreg):
    global runs
    runs += 1
    print("run", runs)
    for _ in range(10):
        torch.empty(1, device=openreg)
"""
    result = run_suite(tmp_path, source, "--openreg-oom-sweep", "-o", "openreg_oom_sweep_most=3", "-s")
    assert result.outcomes == {"test": "passed"}
    assert "run 5" in result.output and "run 6" not in result.output


def test_a_malformed_option_ends_the_run(tmp_path: Path):
    result = run_suite(tmp_path, "def test(): pass", "-o", "openreg_oom_sweep_most=0")
    assert result.status == 4 and "invalid openreg_oom_sweep_most" in result.output
