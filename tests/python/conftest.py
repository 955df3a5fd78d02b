"""Fixtures that the Python tests share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import torch
from children import child_environment, write_metadata
from devices import DEVICE, OPENREG
from forked import Server
from linking import CANNOT_LINK, REASON, skip_what_inductor_compiles

MODULE = torch.get_device_module(DEVICE)
IS_OURS = hasattr(MODULE, "get_schedule")  # openreg, also under the name of CUDA


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run one in N of the tests of each folder, and at least one of them; K says which (default: 0)"
    parser.addoption("--sample", metavar="N[:K]", help=text)


def pytest_report_header() -> str | None:
    return f"skipped where C++ is compiled: {REASON}" if CANNOT_LINK else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Other devices do not import a file that has no test for them, because it may need torch.openreg."""
    other = DEVICE != OPENREG and collection_path.match("test_*.py")
    return True if other and "pytest.mark.any_device" not in collection_path.read_text() else None


@pytest.hookimpl(trylast=True)  # after the selection by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only openreg has, if the device is another, and skips what a setting makes impossible.

    In an adversarial schedule engines hold back, and a host that asks whether work has completed runs it. In a random
    one, calls that launch run commands, too. While races are detected, a program that races on purpose fails, and
    errors name the line that launched a command. With executors some kernels run in another process.
    """
    if DEVICE != OPENREG:
        fit = [item for item in items if item.get_closest_marker("any_device")]
        _keep(config, items, [item for item in fit if not item.get_closest_marker("openreg_only")])
    if sample := config.getoption("--sample"):
        _keep(config, items, _sample(items, *map(int, sample.split(":"))))
    schedule = os.environ.get("TORCH_OPENREG_SCHEDULE", "earliest")
    skipped = []
    if schedule not in ("earliest", "default"):
        skipped.append(("needs_engines", "needs engines"))
    if schedule.startswith("random"):
        skipped.append(("not_at_random", "not in a random schedule"))
    if os.environ.get("TORCH_OPENREG_DETECT_RACES", "0") != "0":
        skipped.append(("no_race_detection", "not while races are detected"))
    if os.environ.get("TORCH_OPENREG_EXECUTOR", "thread") not in ("thread", "default"):
        skipped.append(("no_executor", "not with executors"))
    for item in items:
        for name, reason in skipped:
            if marker := item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=f"{reason}: {marker.args[0]}"))


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    left = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = kept


def _sample(items: list[pytest.Item], share: int, turn: int = 0) -> list[pytest.Item]:
    """One in `share` of the tests of each folder, from a place that `turn` moves: `share` turns run all of them."""
    of_folders: dict[Path, list[pytest.Item]] = {}
    for item in items:
        of_folders.setdefault(item.path.parent, []).append(item)
    return [item for each in of_folders.values() for item in each[turn % min(share, len(each)) :: share]]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """What a file draws when it is imported does not depend on the files before it."""
    if isinstance(collector, pytest.Module):
        torch.default_generator.manual_seed(0)
    return (yield)


def pytest_collection_finish() -> None:
    """Excludes what the collection of tests made from collections of garbage, of which each took a second otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _numbers_do_not_depend_on_earlier_tests() -> None:
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _captures_take_a_stream_of_their_own() -> Iterator[None]:
    """Streams come from a pool, in turn: one that a test makes could be that of all captures before it."""
    yield
    if IS_OURS:
        MODULE.graph._default_streams.clear()


@pytest.fixture(scope="session", autouse=True)
def _skips_what_cannot_be_linked() -> None:
    if CANNOT_LINK:
        skip_what_inductor_compiles()


def _modes() -> dict[str, object]:
    asked = {
        "race detection": "get_race_detection_mode",
        "schedule": "get_schedule",
        "sync debug": "get_sync_debug_mode",
    }
    return {
        **({name: getattr(MODULE, function)() for name, function in asked.items()} if IS_OURS else {}),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


@pytest.fixture(autouse=True)
def _device_state_is_restored() -> Iterator[None]:
    """Each test starts and ends on device 0 and its default stream, and leaves the process's modes as they were."""
    before = _modes()
    yield
    assert _modes() == before, "the test has changed a mode of the process"
    if IS_OURS and MODULE.is_initialized():
        for index in reversed(range(MODULE.device_count())):
            MODULE.set_stream(MODULE.default_stream(index))


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Sums are rounded alike, whoever runs a command: an engine, or a host that waits and has more threads."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code in a process of its own, away from the source tree.

    `path`: directories that go before all others where packages are looked for. Other keywords are environment
    variables; None takes one away. The process must succeed unless `check` is false.
    """

    def run(
        code: str,
        *,
        path: list[Path] | None = None,
        check: bool = True,
        timeout: float = 120,
        **variables: str | None,
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-c", code],
            env=child_environment(path or [], variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def run_forked(tmp_path: Path, _server: Server) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Like run_python, without the import of torch; `forked.py` says when not to use it."""

    def run(
        code: str, *, check: bool = True, timeout: float = 120, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        result = _server.run(code, tmp_path, child_environment([], variables), timeout)
        if check:
            assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Installs a small package, with its metadata, into a directory of its own, and returns the directory."""

    def install_package(name: str, source: str, entry_points: str = "") -> Path:
        site = tmp_path / f"site-{name}"
        package = site / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        write_metadata(site, name, entry_points)
        return site

    return install_package
