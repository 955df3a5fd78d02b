"""The hooks. Nothing here imports torch unless a test or the command line requests the device."""

from __future__ import annotations

import argparse
import os
import unittest
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from . import device, faults, fits, isolation, options, outstanding, request as requested, schedules

if TYPE_CHECKING:
    import torch

_UNCOLLECTED = "openreg: device errors that the test did not collect"
_UNFINISHED = "openreg: captures of graphs that the test did not end"
_failed = pytest.StashKey[bool]()  # of the test
_clean = pytest.StashKey[bool]()  # of the run: garbage of earlier tests does not hold memory


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _set_environment(early_config.known_args_namespace)  # now, because a conftest may use the device


def _set_environment(chosen: argparse.Namespace) -> None:
    if requested.is_watching(chosen):
        os.environ.setdefault("TORCH_OPENREG_STACKS", "1")
    if chosen.openreg_debug_memory:
        os.environ["TORCH_OPENREG_DEBUG_MEMORY"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    _set_environment(config.option)
    requested.timeout(config)  # now, so that a malformed one ends the run
    requested.repeats_all(config)
    requested.most_of_sweep(config)
    config.addinivalue_line(
        "markers",
        "openreg(devices=4, memory='256MiB', ..., sync_debug='error', leaks=True): the test uses the device; if a "
        "setting (TORCH_OPENREG_*, in lower case) differs from this process's, it runs in a separate process",
    )
    config.addinivalue_line(
        "markers",
        "openreg_fault('oom@allocation:3', ...): these faults, as in TORCH_OPENREG_FAULTS, are injected in the test; "
        "it fails if one of them does not occur",
    )
    fits.declare_marker(config)
    config.addinivalue_line(
        "markers",
        "openreg_schedules: --openreg-schedules=N runs the test under the adversarial schedules of the device",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seeds = metafunc.config.option.openreg_schedules
    if seeds is None:
        return
    marked = metafunc.definition.get_closest_marker("openreg_schedules") is not None
    if marked or requested.repeats_all(metafunc.config):
        metafunc.parametrize("_openreg_schedule", schedules.adversarial(range(1, seeds + 1)), indirect=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if isolation.is_child(config):
        device.absence()  # imports torch now, so that the test's time limit does not include it
        return
    is_worker = hasattr(config, "workerinput")  # the controller has checked
    if requested.is_watching(config.option) and not is_worker:
        if reason := device.absence():
            raise pytest.UsageError(f"{reason} (--openreg requires the device)")
        if _forks(config):
            return
        try:
            device.initialise()
        except RuntimeError as error:
            raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> str | None:
    if not requested.is_watching(config.option) or device.absence():
        return None
    schedule = os.environ.get(schedules.VARIABLE, schedules.EARLIEST)
    suffix = "" if schedule in (schedules.EARLIEST, "default") else f", schedule {schedule}"
    return f"openreg: {device.description(with_devices=not _forks(config))}{suffix}"


def _forks(config: pytest.Config) -> bool:
    """Whether pytest-forked forks a process for each test, which can use the device only if this process does not."""
    return bool(getattr(config.option, "forked", False))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        requested.check_marker(item)
        fits.check_marker(item)
        for specification in requested.faults(item):
            if problem := faults.check(item, specification):
                raise pytest.UsageError(f"openreg: {item.nodeid}: invalid openreg_fault: {problem}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isolation.is_needed(item):
        return None
    isolation.run(item, nextitem)
    return True


@pytest.fixture
def openreg(_openreg_state: None) -> torch.device:
    """The device, openreg:0. The test is skipped if it is missing."""
    import torch

    return torch.device("openreg", 0)


@pytest.fixture(autouse=True)
def _openreg_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the test under the schedule that it is parametrised with."""
    if not hasattr(request, "param"):
        yield
        return
    if reason := device.absence():
        pytest.skip(reason)
    before = device.set_schedule(request.param)
    yield
    if not outstanding.is_busy():  # else it would wait
        device.set_schedule(before)


# Set up after the fixtures of wider scopes and before those of the test; torn down after the latter.
@pytest.fixture(autouse=True)
def _openreg_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restores the state of the device after each test, and checks the test for leaks if requested."""
    item = request.node
    if not requested.is_watched(item):
        yield
        return
    if requested.asks_for_device(item):
        if reason := device.absence():
            pytest.skip(reason)
        device.initialise()
    looks_for_leaks = requested.looks_for_leaks(item)
    if looks_for_leaks:
        device.remember_where_memory_is_allocated()
        if not item.config.stash.get(_clean, False):
            device.collect_garbage()
    before = device.current_state(with_blocks=looks_for_leaks)
    yield
    getattr(item, "funcargs", {}).clear()  # pytest keeps the values of fixtures slightly longer than the test
    is_measured = looks_for_leaks and not item.stash.get(_failed, False)  # the traceback of a failure holds memory
    leaks = device.leaks(before) if is_measured else []
    item.config.stash[_clean] = is_measured
    before.restore()
    if leaks:
        pytest.fail("openreg: the test leaks:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_failed] = False  # a plugin may run a test again
    if requested.is_watched(item):
        for capture in outstanding.end_captures():
            item.warn(
                pytest.PytestWarning(f"openreg: {capture}, was still under way when the test began; it has ended")
            )
        if outstanding.is_busy():
            pytest.fail("openreg: the device has not completed the work of an earlier test", pytrace=False)
    with _collecting(item, "setup", captures_after=None):  # a fixture may end its capture when it is torn down
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _collecting(item, "call", captures_after=outstanding.last_capture()), _sync_debug_mode(item), _races(item):
        with faults.of_marker(item), fits.of_marker(item):
            result = yield
        faults.sweep(item)
        return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _collecting(item, "teardown", captures_after=0):
        return (yield)


@contextmanager
def _collecting(item: pytest.Item, when: str, captures_after: int | None) -> Iterator[None]:
    """At the end, ends the captures that began after this one, waits for the device, and collects its errors.

    These fail the phase; if it has failed already, they are added to its report.
    """
    if not requested.is_watched(item):
        yield
        return

    def problems() -> str:
        unfinished = [] if captures_after is None else outstanding.end_captures(captures_after)
        errors = outstanding.uncollected_errors(requested.timeout(item.config))
        parts = [_UNFINISHED, *unfinished] if unfinished else []
        return "\n".join([*parts, _UNCOLLECTED, *errors] if errors else parts)

    def fails_anyway() -> None:
        item.stash[_failed] = True
        if text := problems():
            item.add_report_section(when, "stderr", text)

    try:
        yield
    except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
        raise
    except (pytest.skip.Exception, unittest.SkipTest):
        _fail_for(item, problems())
        raise
    except BaseException:
        fails_anyway()
        raise
    kept = _kept_outcomes(item)
    if any(not isinstance(outcome.value, pytest.skip.Exception) for outcome in kept):
        return fails_anyway()
    if text := problems():
        kept.clear()
        _fail_for(item, text)


def _kept_outcomes(item: pytest.Item) -> list[pytest.ExceptionInfo[BaseException]]:
    """Failures and skips of a unittest.TestCase, which pytest keeps until it makes the report, and does not raise."""
    return getattr(item, "_excinfo", None) or []


def _fail_for(item: pytest.Item, problems: str) -> None:
    if problems:
        item.stash[_failed] = True
        pytest.fail(problems, pytrace=False)


@contextmanager
def _sync_debug_mode(item: pytest.Item) -> Iterator[None]:
    mode = requested.sync_debug_mode(item) if requested.is_watched(item) else "default"
    if mode == "default":
        yield
        return
    before = device.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        device.set_sync_debug_mode(before)


@contextmanager
def _races(item: pytest.Item) -> Iterator[None]:
    """Fails the test if it raced, also if it has caught the exception."""
    if not (requested.is_watched(item) and requested.looks_for_races(item)):
        yield
        return
    before = device.set_race_detection_mode("error")
    device.take_race_reports()  # of what ran before
    reports: list[str] = []
    try:
        yield
        reports = device.take_race_reports()
    finally:
        if not outstanding.is_busy():  # else it would wait
            device.set_race_detection_mode(before)
    if reports:
        pytest.fail("\n".join(("openreg: the test caught the error that reported a race", *reports)), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (schedule := device.schedule()) != schedules.EARLIEST:
        report.sections.append(("openreg schedule", f"{schedules.VARIABLE}={schedule}"))
    return report


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """The limit of pytest-timeout applies in the process that runs the test, not in the one that waits for it."""
    return True if isolation.is_needed(item) else None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    return True if isolation.is_needed(item) else None
