"""``python -m torch_openreg``: the report, and the self-test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torch_openreg import __main__ as program

SETTINGS = Path(__file__).parents[3] / "docs/settings.md"
RUN = "import runpy, sys; sys.argv = ['torch_openreg', {}]; runpy.run_module('torch_openreg', run_name='__main__')"


def rows(text: str) -> dict[str, str]:
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def test_it_prints_versions_machine_and_settings_with_their_sources_and_tests_the_device(run_python):
    printed = run_python(RUN.format("'--check'"), TORCH_OPENREG_DEVICES="3", TORCH_OPENREG_MEMORY="64MiB").stdout
    report, _, checks = printed.partition("\n\n")
    found = rows(report)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*, built for torch \d+\.\d+\.\d+", found["torch_openreg"])
    assert found["import torch"] == "loads the device"
    assert found["TORCH_OPENREG_DEVICES"] == "3 (environment)"
    assert found["TORCH_OPENREG_MEMORY"] == "64MiB (environment)"
    assert re.fullmatch(r"\d+ \(default\)", found["TORCH_OPENREG_ENGINES"])
    assert {"torch", "Python", "system", "processor", "cores", "threads"} <= found.keys()
    assert [line.partition(": ok, ")[0] for line in checks.splitlines()] == list(program.CHECKS)


def test_it_prints_all_settings():
    documented = set(re.findall(r"^\| `(TORCH_OPENREG_\w+)`", SETTINGS.read_text(), re.MULTILINE))
    assert program.settings().keys() == documented


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("TORCH_OPENREG_AUTOLOAD", "off", "does not load the device: TORCH_OPENREG_AUTOLOAD=off"),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", "loads no backend: TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    ],
)
def test_it_prints_why_import_torch_does_not_load_the_device(monkeypatch, variable, value, expected):
    monkeypatch.setenv(variable, value)
    assert expected in [line.partition("import torch")[2].strip() for line in program.report()]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("default", "does not load the device because cuda is available; TORCH_OPENREG_AUTOLOAD=force loads it"),
        ("force", "loads the device in addition to cuda: TORCH_OPENREG_AUTOLOAD=force"),
    ],
)
def test_it_reports_another_accelerator(monkeypatch, choice, expected):
    monkeypatch.setenv("TORCH_OPENREG_AUTOLOAD", choice)
    monkeypatch.setattr(program._loading, "available_accelerator", lambda: "cuda")
    assert program._autoload() == expected


def test_a_failing_self_test_is_reported(monkeypatch, capsys):
    def wrong() -> None:
        raise AssertionError("3 is not 4")

    monkeypatch.setattr(program, "CHECKS", {"right": lambda: None, "wrong": wrong})
    assert program.run_checks() == 1
    printed = capsys.readouterr().out
    assert "right: ok" in printed and "wrong: FAILED" in printed and "3 is not 4" in printed


def test_bad_arguments_are_reported(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["torch_openreg", "--nonsense"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "--nonsense" in capsys.readouterr().err
