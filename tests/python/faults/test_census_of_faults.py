"""Operators and programs recover from each lack of memory and each failing command: `tests/census/out_of_memory.py` and
`failing_programs.py`, here by a slice."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import pytest
import torch
from censuses import CENSUS, run_census

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")


@pytest.mark.timeout(300)
def test_one_operator_in_128_recovers_from_a_lack_of_memory(tmp_path):
    results = run_census(tmp_path, "--slice", "--samples", "1", program="out_of_memory.py")
    assert len(results) >= 4 and sum(result["samples"] for result in results) >= 40


@pytest.mark.timeout(300)
def test_some_programs_recover_from_a_lack_of_memory_and_from_failing_commands(tmp_path):
    results = run_census(tmp_path, "--slice", program="failing_programs.py")
    assert len(results) == 8 and sum(result["samples"] for result in results) >= 16


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_programs_recover_wherever_a_command_or_an_allocation_fails(tmp_path):
    results = run_census(tmp_path, program="failing_programs.py")
    assert len(results) == 40 and sum(result["samples"] for result in results) >= 350


def no_error(call: Any) -> Any:
    with contextlib.suppress(torch.OutOfMemoryError):
        return call.input + 1


def other_error(call: Any) -> Any:
    try:
        return call.input + 1
    except torch.OutOfMemoryError as error:
        raise RuntimeError("openreg: another error") from error


def written_argument(call: Any) -> Any:
    result = call.input + 1
    try:
        return result + 1
    except torch.OutOfMemoryError:
        call.input.zero_()
        raise


class KeptMemory:
    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __call__(self, call: Any) -> Any:
        result = call.input + 1
        try:
            return result + 1
        except torch.OutOfMemoryError:
            self.kept.append(result)
            raise


class OtherResultAfterwards:
    failed = 0

    def __call__(self, call: Any) -> Any:
        try:
            return call.input + self.failed
        except torch.OutOfMemoryError:
            self.failed += 1
            raise


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (no_error, "the error is lost"),
        (other_error, "raises RuntimeError: openreg: another error"),
        (written_argument, "changes its arguments"),
        (KeptMemory(), "leaves 512 bytes"),
        (OtherResultAfterwards(), "the next call has another result"),
    ],
)
def test_the_sweep_of_operators_finds(monkeypatch, function, found):
    monkeypatch.syspath_prepend(CENSUS)
    monkeypatch.setattr(importlib.import_module("leftovers"), "PATIENCE", 0.1)
    out_of_memory = importlib.import_module("out_of_memory")
    samples = importlib.import_module("samples")
    form = out_of_memory.Form("function", samples.Call(torch.ones(4), (), {}), function)
    form.check()
    assert any(found in each for each in form.found), form.found


def program_without_error() -> Any:
    x = torch.ones(4, device="openreg") * 2
    with contextlib.suppress(torch.AcceleratorError):
        torch.accelerator.synchronize()
    return x


class ProgramWithMemory:
    kept: torch.Tensor | None = None

    def __call__(self) -> Any:
        x = torch.ones(4, device="openreg") * 2
        try:
            torch.accelerator.synchronize()
        except torch.AcceleratorError:
            self.kept = x
            raise
        return x


class ProgramWithOtherResult:
    failed = 0

    def __call__(self) -> Any:
        x = torch.ones(4, device="openreg") * 2 + self.failed
        try:
            torch.accelerator.synchronize()
        except torch.AcceleratorError:
            self.failed = 1
            raise
        return x


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (program_without_error, "the error is lost"),
        (ProgramWithMemory(), "leaves 512 bytes"),
        (ProgramWithOtherResult(), "the next run has another result"),
        pytest.param(
            lambda: torch.ones(4, device="openreg"),
            "the error does not name the line",
            marks=pytest.mark.no_race_detection("errors name lines then, as with TORCH_OPENREG_STACKS"),
        ),
    ],
)
def test_the_sweep_of_programs_finds(monkeypatch, program, found):
    monkeypatch.syspath_prepend(CENSUS)
    monkeypatch.setattr(importlib.import_module("leftovers"), "PATIENCE", 0.1)
    failing_programs = importlib.import_module("failing_programs")
    result = importlib.import_module("result").Result("a program", "launch", "")
    failing_programs.Sweep(result, program, 8).check()
    assert any(found in each for each in result.details), result.details


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_operator_recovers_from_a_lack_of_memory(tmp_path):
    results = run_census(tmp_path, program="out_of_memory.py")
    assert len(results) >= 600 and sum(result["samples"] for result in results) >= 20_000
