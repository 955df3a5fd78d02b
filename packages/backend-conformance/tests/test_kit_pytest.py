"""pytest --pyargs backend_conformance: each check is a test, also with pytest-xdist."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import kit_runs
import pytest

DECLARED = '[declared]\n"behaved.says_missing" = "planned"\n[lacks]\nseveral_devices = "one board"\n'


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "declarations.toml").write_text(DECLARED)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--junitxml=results.xml",
            "--pyargs",
            "backend_conformance",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=directory,
    )


def verdicts_of(directory: Path, *arguments: str) -> dict[str, str]:
    """Runs the group `behaved`, and returns how each check's test ended, by id."""
    options = ("--device", "cpu", "--folder", str(kit_runs.CHECKS), "--declarations", "declarations.toml")
    ended = run(directory, *options, "-k", "behaved", "--conformance-json", "results.json", *arguments)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "five instead of four" in ended.stdout and "run alone: python -m backend_conformance" in ended.stdout
    return {
        test.attrib["name"].partition("[")[2].removesuffix("]"): ending(test)
        for test in ElementTree.parse(directory / "results.xml").iter("testcase")
    }


def ending(test: ElementTree.Element) -> str:
    """How a test ended: "passed", "failed", "xfail", or why it was skipped."""
    if (skipped := test.find("skipped")) is not None:
        return "xfail" if skipped.attrib["type"] == "pytest.xfail" else skipped.attrib["message"]
    return "passed" if test.find("failure") is None and test.find("error") is None else "failed"


EXPECTED = {
    "behaved.passes": "passed",
    "behaved.family[one]": "passed",
    "behaved.says_missing": "xfail",
    "behaved.says_not_applicable": "several_devices: one board",
    **{
        f"behaved.{name}": "failed"
        for name in ("says_wrong", "asserts", "compares", "lacks_a_kernel", "says_vacuous", "raises", "family[two]")
    },
}


def test_each_check_is_a_test(tmp_path: Path) -> None:
    assert verdicts_of(tmp_path) == EXPECTED
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["level"] == ""  # -k selects
    assert len(results["checks"]) == 11 and results["torch"].startswith("2.")


@pytest.mark.full
def test_workers_of_xdist_share_the_groups(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    assert verdicts_of(tmp_path, "-n", "2") == EXPECTED
    assert len(json.loads((tmp_path / "results.json").read_text())["checks"]) == 11


@pytest.mark.full
def test_a_backend_that_cannot_be_loaded_fails_all_tests(tmp_path: Path) -> None:
    ended = run(
        tmp_path, "--device", "cpu", "--folder", str(kit_runs.CHECKS), "--level", "boots", "--setup", "no_such_backend"
    )
    assert ended.returncode == 1
    assert "the backend cannot be loaded" in ended.stdout and " passed" not in ended.stdout


def test_the_device_has_to_be_named(tmp_path: Path) -> None:
    ended = run(tmp_path)
    assert ended.returncode == 4
    assert "the checks require --device NAME" in ended.stderr + ended.stdout


def test_other_runs_are_free_to_have_an_option_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--device')\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it(request):\n    assert request.config.getoption('--device') == 'a'\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--device", "a", "test_it.py"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
