"""Tests and programs under adversarial schedules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from suite import has, run_suite

schedules = pytest.importorskip(
    "pytest_openreg.schedules", reason="pytest-openreg is not installed; pip install packages/pytest-openreg"
)

SUITE = """
import pytest
import torch


def read_too_early():
    host = torch.zeros(100).pin_memory()
    host.copy_(torch.ones(100, device="openreg"), non_blocking=True)
    return host.sum().item()


@pytest.mark.openreg_schedules
def test_lacks_an_order():
    assert read_too_early() == 100


@pytest.mark.openreg_schedules
@pytest.mark.parametrize("number", [1, 2])
def test_is_correct(number):
    assert torch.full((10,), number, device="openreg").sum().item() == 10 * number


def test_is_not_marked():
    assert torch.openreg.get_schedule() == "earliest"
"""

PROGRAM = """
import sys
import torch

host = torch.zeros(100).pin_memory()
host.copy_(torch.ones(100, device="openreg"), non_blocking=True)
if "order" in sys.argv:
    torch.accelerator.synchronize()
if "fail" in sys.argv:
    sys.exit(0 if host.sum() == 100 else 3)
print(host.sum().item())
"""


def test_marked_tests_run_under_each_schedule_and_the_schedule_that_fails_is_named(tmp_path: Path):
    result = run_suite(tmp_path, SUITE, "--openreg-schedules=1")
    assert set(result.outcomes) == {
        "test_lacks_an_order[latest]",
        "test_lacks_an_order[random:1]",
        *(f"test_is_correct[{schedule}-{number}]" for schedule in ("latest", "random:1") for number in (1, 2)),
        "test_is_not_marked",
    }
    assert result.outcomes["test_lacks_an_order[latest]"] == "failed"
    assert {outcome for name, outcome in result.outcomes.items() if "lacks" not in name} == {"passed"}
    assert has(result.output, "openreg schedule", "TORCH_OPENREG_SCHEDULE=latest")


def test_without_the_option_each_test_runs_once(tmp_path: Path):
    result = run_suite(tmp_path, SUITE, "-k", "correct or not_marked")
    assert set(result.outcomes) == {"test_is_correct[1]", "test_is_correct[2]", "test_is_not_marked"}


def test_the_option_can_apply_to_all_tests(tmp_path: Path):
    source = "def test(openreg): pass"
    result = run_suite(tmp_path, source, "--openreg-schedules=2", "-o", "openreg_schedules=all")
    assert result.outcomes == dict.fromkeys(("test[latest]", "test[random:1]", "test[random:2]"), "passed")


@pytest.mark.parametrize("option", ["--openreg-schedules=-1", "-oopenreg_schedules=some"])
def test_malformed_options_end_the_run(tmp_path: Path, option: str):
    result = run_suite(tmp_path, SUITE, option)
    assert result.status == 4 and "openreg: invalid" in result.output


@pytest.fixture
def program(tmp_path: Path) -> str:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    return str(script)


def test_a_program_that_prints_the_same_passes(program: str, capfd: pytest.CaptureFixture[str]):
    assert schedules.main(["-n", "1", program, "order"]) == 0
    assert capfd.readouterr().out == "earliest: exit status 0\nlatest: the same\nrandom:1: the same\n"


@pytest.mark.parametrize("arguments, why", [(["print"], "other output"), (["fail"], "exit status 3")])
def test_a_program_that_differs_is_reported_with_its_command(
    program: str, capfd: pytest.CaptureFixture[str], arguments: list[str], why: str
):
    # Only `latest` is certain to differ, so under `earliest` the program synchronizes.
    script = Path(program)
    script.write_text(PROGRAM.replace('"order" in sys.argv', 'torch.openreg.get_schedule() != "latest"'))
    assert schedules.main(["--seeds", "7", program, *arguments]) == 1
    output = capfd.readouterr().out
    assert f"latest: {why}" in output
    assert f"reproduce: TORCH_OPENREG_SCHEDULE=latest {sys.executable} {program} {arguments[0]}" in output
    assert "random:7: the same" in output


def test_a_program_that_fails_by_itself_is_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('bad')")
    assert schedules.main([str(script)]) == 2
    assert "exit status 1\nbad" in capfd.readouterr().out


def test_a_program_that_does_not_end_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = tmp_path / "hangs.py"
    script.write_text("import os, time\nif os.environ['TORCH_OPENREG_SCHEDULE'] != 'earliest': time.sleep(60)")
    assert schedules.main(["-n", "0", "--timeout", "3", str(script)]) == 1
    assert "latest: did not end in time" in capfd.readouterr().out
