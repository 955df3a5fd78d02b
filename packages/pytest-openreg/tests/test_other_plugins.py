"""The plugin beside the most used plugins of pytest: each alone, pairs that interact, and all together.

They are installed into a folder of their own, since some change every run of pytest in an environment that has them.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from suite import has, run_suite

pytestmark = pytest.mark.full
pytest.importorskip("pytest_openreg", reason="pytest-openreg is not installed; pip install packages/pytest-openreg")

# By the name that `-p no:` takes. What they need besides pytest is named too: pip must not install another pytest.
PLUGINS = {
    "xdist": ["pytest-xdist", "execnet"],
    "rerunfailures": ["pytest-rerunfailures"],
    "timeout": ["pytest-timeout"],
    "pytest_cov": ["pytest-cov", "coverage"],
    "pytest_mock": ["pytest-mock"],
    "asyncio": ["pytest-asyncio"],
    "benchmark": ["pytest-benchmark", "py-cpuinfo"],
    "randomly": ["pytest-randomly"],
    "pytest_forked": ["pytest-forked", "py"],
    "subtests": ["pytest-subtests", "attrs"],
}

SUITE = """
import os
import random

import pytest
import torch

isolated = pytest.mark.openreg(devices=3)
kept = []


@pytest.fixture(params=["here", pytest.param("elsewhere", marks=isolated)], autouse=True)
def where(request, openreg):
    if request.param == "elsewhere":
        assert torch.accelerator.device_count() == 3


def test_passes():
    assert torch.ones(3, device="openreg").sum().item() == 3


def test_fails():
    assert torch.ones(3, device="openreg").sum().item() == 4


def test_leaves_an_error():
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))


def test_leaves_a_capture():
    torch.accelerator.set_stream(torch.Stream("openreg"))
    kept.append(torch.openreg.CUDAGraph())
    kept[-1].capture_begin()


@pytest.mark.skip(reason="not today")
def test_skips():
    pass
"""

OUTCOMES = {
    f"{test}[{where}]": outcome
    for test, outcome in {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_leaves_an_error": "failed",
        "test_leaves_a_capture": "failed",
        "test_skips": "skipped",
    }.items()
    for where in ("here", "elsewhere")
}

# For each plugin: the test, the options, the outcome in a process of its own and in the shared one.
USES = {
    "xdist": (
        """
def test_worker(worker_id, testrun_uid):
    assert worker_id == os.environ.get("PYTEST_XDIST_WORKER", "master")
    assert testrun_uid == os.environ.get("PYTEST_XDIST_TESTRUNUID", testrun_uid)


@pytest.mark.xdist_group("one")
def test_group():
    pass
""",
        [],
        {"test_worker": "passed", "test_group": "passed"},
    ),
    "rerunfailures": (
        """
attempts = []


@pytest.mark.flaky(reruns=2)
def test_flaky():
    attempts.append(len(attempts))
    if len(attempts) == 1:
        torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))


@pytest.mark.flaky(reruns=1)
def test_never():
    assert 0
""",
        [],
        {"test_flaky": "passed", "test_never": "failed"},
    ),
    "timeout": (
        """
@pytest.mark.timeout(5, method="signal")
def test_hangs():
    import threading
    threading.Event().wait()


@pytest.mark.timeout(60, method="thread")
def test_is_in_time():
    pass


@pytest.mark.timeout(5, method="signal")
def test_hangs_on_the_device():
    torch.accelerator.set_stream(torch.Stream("openreg"))
    torch.ones(2, device="openreg")
""",
        ["--timeout=100"],
        {"test_hangs": "failed", "test_is_in_time": "passed", "test_hangs_on_the_device": "passed"},
    ),
    "pytest_cov": ("", ["--cov=.", "--cov-report="], {}),
    "pytest_mock": (
        """
def test_mock(mocker):
    mocker.patch("torch.accelerator.synchronize", return_value=5)
    assert torch.accelerator.synchronize() == 5
""",
        [],
        {"test_mock": "passed"},
    ),
    "asyncio": (
        """
@pytest.mark.asyncio
async def test_async():
    import asyncio
    await asyncio.sleep(0)
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))
""",
        [],
        {"test_async": "failed"},
    ),
    "benchmark": (
        """
def test_benchmark(benchmark):
    assert benchmark.pedantic(lambda: torch.ones(2, device="openreg").sum().item(), rounds=2) == 2
""",
        [],
        {"test_benchmark": "passed"},
    ),
    "randomly": (
        """
def test_random(pytestconfig):
    assert pytestconfig.option.randomly_seed == 7
""",
        ["--randomly-seed=7"],
        {"test_random": "passed"},
    ),
    "pytest_forked": ("", [], {}),
    "subtests": (
        """
def test_parts(subtests):
    for value in range(3):
        with subtests.test(value=value):
            assert torch.full((1,), value, device="openreg").item() == value
""",
        [],
        {"test_parts": "passed"},
    ),
}

PAIRS = [("xdist", "rerunfailures"), ("xdist", "randomly"), ("rerunfailures", "timeout"), ("rerunfailures", "subtests")]
ALL = tuple(PLUGINS)


def install(folder: Path, *packages: str) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"pip cannot install {packages}: {result.stderr[-300:]}")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all plugins."""
    return install(tmp_path_factory.mktemp("plugins"), *itertools.chain(*PLUGINS.values()))


def alone(plugins: tuple[str, ...]) -> list[str]:
    """Options that disable the other plugins."""
    return [option for name in PLUGINS if name not in plugins for option in ("-p", f"no:{name}")]


@pytest.mark.parametrize(
    ("plugins", "options"),
    [
        *(((name,), []) for name in PLUGINS),
        *((pair, []) for pair in PAIRS),
        (ALL, []),
        *(((name, "xdist"), ["-n", "2"]) for name in PLUGINS if name != "xdist"),
        (("xdist",), ["-n", "2", "--dist=loadgroup"]),
        (ALL, ["-n", "2"]),
    ],
    ids=lambda value: "-".join(value) if len(value) < 5 else "all",
)
def test_outcomes_beside(folder: Path, tmp_path: Path, plugins: tuple[str, ...], options: list[str]) -> None:
    uses = [USES[name] for name in PLUGINS if name in plugins]
    source = SUITE + "".join(test for test, _, _ in uses)
    arguments = [argument for _, arguments, _ in uses for argument in arguments]
    expected = dict(OUTCOMES)
    for _, _, outcomes in uses:
        expected |= {f"{test}[{where}]": word for test, word in outcomes.items() for where in ("here", "elsewhere")}
    result = run_suite(tmp_path, source, *alone(plugins), *arguments, *options, PYTHONPATH=str(folder))
    assert {test.partition("@")[0]: word for test, word in result.outcomes.items()} == expected, result.output
    assert result.status == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.output


def test_a_test_in_a_separate_process_runs_again(folder: Path, tmp_path: Path) -> None:
    source = SUITE + USES["rerunfailures"][0]
    result = run_suite(tmp_path, source, *alone(("rerunfailures",)), "-k", "flaky or never", PYTHONPATH=str(folder))
    assert has(result.output, "2 failed, 2 passed, 10 deselected, 4 rerun"), result.output


def test_coverage_counts_separate_processes_if_it_is_told_to(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "covered.py").write_text("def here():\n    return 1\n\n\ndef there():\n    return 2\n")
    (tmp_path / ".coveragerc").write_text("[run]\npatch = subprocess\n")
    # In an environment, coverage installs a file for this, which Python does not read in folders of PYTHONPATH.
    (tmp_path / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    source = """
import pytest
import covered
def test_here(openreg): assert covered.here() == 1
@pytest.mark.openreg(devices=3)
def test_there(openreg): assert covered.there() == 2
"""
    options = ["--cov=covered", "--cov-report=term-missing"]
    path = os.pathsep.join((str(folder), str(tmp_path)))
    result = run_suite(tmp_path, source, *alone(("pytest_cov",)), *options, PYTHONPATH=path)
    assert result.outcomes == {"test_here": "passed", "test_there": "passed"}, result.output
    assert has(result.output, r"covered.py +4 +0 +100%"), result.output


def test_forked_tests_use_the_device(folder: Path, tmp_path: Path) -> None:
    # pytest-forked 1.7 cannot send the reports of pytest 9.2 from one process to another.
    path = os.pathsep.join((str(install(tmp_path / "pytest", "pytest==9.1.0")), str(folder)))
    result = run_suite(tmp_path, SUITE, *alone(("pytest_forked",)), "--forked", "--openreg", PYTHONPATH=path)
    assert result.outcomes == OUTCOMES, result.output


def test_a_device_that_hangs_ends_with_the_time_limit(folder: Path, tmp_path: Path) -> None:
    source = """
import threading
import pytest
import torch
@pytest.mark.timeout(4)
def test_waits(openreg):
    torch.openreg._sleep(10**15)
    threading.Event().wait()
@pytest.mark.timeout(60)
@pytest.mark.openreg(devices=3)
def test_elsewhere(openreg):
    assert torch.ones(2, device=openreg).sum().item() == 2
"""
    options = ["-o", "openreg_timeout=1"]
    result = run_suite(tmp_path, source, *alone(("timeout",)), *options, PYTHONPATH=str(folder))
    assert result.outcomes == {"test_waits": "error", "test_elsewhere": "passed"}, result.output
    assert "Timeout" in result.output
