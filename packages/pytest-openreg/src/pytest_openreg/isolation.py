"""Tests that need other settings run in a separate process and are reported as if they had run in this one."""

from __future__ import annotations

import builtins
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

from . import child, request as requested

# For the child: no debugger and no workers; the test is already selected, and the parent writes the files.
_OPTIONS_OF_CHILD: dict[str, Any] = {
    "usepdb": False,
    "trace": False,
    "setuponly": False,
    "setupshow": False,
    "setupplan": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "maxfail": 0,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "cacheclear": False,
    "stepwise": False,
    "stepwise_skip": False,
    "xmlpath": None,
    "log_file": os.devnull,
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "cov_source": [],
    "no_cov": True,
    "forked": False,
}


def is_child(config: pytest.Config) -> bool:
    """Whether this is the process of one test."""
    return hasattr(config, child.MARK)


def is_needed(item: pytest.Item) -> bool:
    """Whether the test needs other settings than this process has. If a package is missing, it is skipped here."""
    if is_child(item.config) or not requested.differing_settings(item):
        return False
    return all(importlib.util.find_spec(package) is not None for package in ("torch", "torch_openreg"))


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Runs the test in a separate process and logs its reports."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    _tear_down_what_only_earlier_tests_needed(item, nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    with tempfile.TemporaryDirectory(prefix="pytest-openreg-") as folder:
        log = Path(folder, "log")
        status, output = _run_child(item, Path(folder), log)
        phases = set()
        for kind, content in _entries(log):
            if kind == "warning":
                _warn(item, content)
                continue
            report = item.config.hook.pytest_report_from_serializable(config=item.config, data=content)
            report.nodeid = item.nodeid
            if type(report) is pytest.TestReport:  # not a report of a subtest
                phases.add(report.when)
            yield report
    if "teardown" not in phases:
        # As in pytest, the report of the teardown has the output of all phases: other plugins use that one.
        sections = [("Captured stdout call", output)] if output else []
        if "call" not in phases:
            yield _report(item, "call", "failed", _cause_of_death(status), sections)
            yield _report(item, "teardown", "passed", None, sections)
        else:
            yield _report(item, "teardown", "failed", _cause_of_death(status), sections)


def _entries(log: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the child has written; the last entry may be incomplete."""
    if not log.exists():
        return
    with log.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return


def _run_child(item: pytest.Item, folder: Path, log: Path) -> tuple[int, str]:
    job, output = folder / "job", folder / "output"
    job.write_bytes(pickle.dumps(_job(item, folder, log)))
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, child.__file__, str(job)],
            env={**os.environ, **requested.settings(item)},
            cwd=item.config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=None if _shows_output(item) else file,
            stderr=None if _shows_output(item) else subprocess.STDOUT,
        )
        try:
            status = process.wait()
        finally:  # on a keyboard interrupt, or a timeout of another plugin
            process.kill()
            process.wait()
    return status, output.read_text(errors="replace")


def _job(item: pytest.Item, folder: Path, log: Path) -> dict[str, Any]:
    config = item.config
    options = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
    options.pop("file_or_dir", None)  # is in the arguments
    options |= {name: value for name, value in _OPTIONS_OF_CHILD.items() if name in options}
    blocked = [*child.FILES, *(["terminal"] if _shows_output(item) else [])]  # with -s, show the test's output only
    options["plugins"] = [*options.get("plugins", ()), *(f"no:{name}" for name in blocked)]
    options["basetemp"] = str(folder / "basetemp")
    options["rootdir"] = str(config.rootpath)
    if config.inipath is not None:
        options["inifilename"] = str(config.inipath)
    worker = getattr(config, "workerinput", {})
    nodeid = _nodeid_in_child(item)
    return {
        "path": sys.path,
        "options": options,
        "arguments": [f"{item.path}::{nodeid.partition('::')[2]}"],
        "worker": {name: worker[name] for name in ("workerid", "testrunuid") if name in worker},
        "nodeid": nodeid,
        "log": str(log),
    }


def _nodeid_in_child(item: pytest.Item) -> str:
    """The id as pytest forms it: with `--dist loadgroup`, the workers of pytest-xdist append the group to theirs."""
    return f"{item.parent.nodeid}::{item.name}" if item.parent is not None else item.nodeid


def _shows_output(item: pytest.Item) -> bool:
    """Whether pytest captures no output (-s)."""
    return bool(item.config.getoption("capture", "fd") == "no")


def _is_plain(value: object) -> bool:
    """Whether a process that has not imported the same modules can unpickle the value."""
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, PurePath) or type(value) in (bool, int, float, str)


def _cause_of_death(status: int) -> str:
    if status >= 0:
        cause = f"exited with status {status}"
    elif -status in signal.Signals.__members__.values():
        cause = f"was killed by {signal.Signals(-status).name}"
    else:  # most real-time signals have no name
        cause = f"was killed by signal {-status}"
    return f"openreg: the test's process {cause} before the test finished"


def _report(
    item: pytest.Item, when: Any, outcome: Any, text: str | None, sections: list[tuple[str, str]]
) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, text, when, sections)


def _warn(item: pytest.Item, written: dict[str, Any]) -> None:
    """Reports a warning of the child as one of this process."""
    category = getattr(builtins, written["category"], None)
    known = isinstance(category, type) and issubclass(category, Warning)
    text = written["text"] if known else f"{written['category']}: {written['text']}"
    kind: type[Warning] = category if known else UserWarning  # type: ignore[assignment]
    warning = warnings.WarningMessage(kind(text), kind, written["file"], written["line"])
    item.config.hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": warning, "nodeid": item.nodeid, "when": "runtest", "location": None}
    )


def _tear_down_what_only_earlier_tests_needed(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # Fixtures of modules and classes are torn down after the last test that uses them, which may be this one. The usual
    # hook expects a test that was set up here, so this calls pytest's internal function.
    ending = item.session.shouldfail or item.session.shouldstop
    call = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(None if ending else nextitem), when="teardown"
    )
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
