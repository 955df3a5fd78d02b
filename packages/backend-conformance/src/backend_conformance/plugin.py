"""pytest --pyargs backend_conformance --device NAME: the options, how pytest-xdist distributes, and the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .declarations import BadDeclarations
from .levels import Level
from .result import Result, Summary
from .session import NothingToRun, Session

_SESSION = pytest.StashKey[Session]()
_PROPERTY = "backend_conformance"  # of a test's report: what the check's result was


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Adds options only if the kit is requested: other projects have an option --device, too."""
    if not _asked_for(args):
        return
    group = parser.getgroup("conformance", "conformance of a PyTorch backend")
    add = group.addoption
    add("--device", dest="conformance_device", help="the name of the device type")
    add("--setup", dest="conformance_setup", default="", help="a package to import, or file.py:function to call")
    add("--declarations", dest="conformance_declarations", metavar="FILE", help="what the backend does not support")
    add("--level", dest="conformance_level", default="complete", help="the highest level to run")
    add("--patience", dest="conformance_patience", type=float, default=1.0, help="multiplies the time limits of checks")
    add("--folder", dest="conformance_folder", help="a folder with other groups of checks")
    add("--conformance-json", dest="conformance_json", metavar="FILE", help="write the results to FILE as JSON")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without --device there is nothing to test: other runs may come across the file of the tests."""
    if collection_path != Path(__file__).with_name("test_conformance.py"):
        return None
    return None if config.getoption("conformance_device", None) else True


def session_of(config: pytest.Config) -> Session | None:
    """The run that the options describe; None without --device."""
    # Workers of pytest-xdist get the values of options, which they do not parse.
    device = config.getoption("conformance_device", None)
    if not device:
        return None
    if _SESSION not in config.stash:
        declarations, folder = (config.getoption(f"conformance_{name}", None) for name in ("declarations", "folder"))
        start = config.invocation_params.dir
        more: dict[str, Any] = {"folder": (start / folder).resolve()} if folder else {}
        try:
            config.stash[_SESSION] = Session(
                device,
                config.getoption("conformance_setup", ""),
                level=Level.parse(config.getoption("conformance_level", "complete")),
                declarations_file=start / declarations if declarations else None,
                patience=config.getoption("conformance_patience", 1.0),
                **more,
            )
        except (NothingToRun, BadDeclarations, ValueError) as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[_SESSION]


def record(item: pytest.Item, result: Result, torch: str) -> None:
    """Notes a result in the test's report, which comes from a worker of pytest-xdist, too."""
    item.user_properties.append((_PROPERTY, json.dumps({"torch": torch, "result": result.to_json()})))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives all checks of a group to one worker: they share a process."""
    if not config.getoption("conformance_device", None):
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped, import-not-found, unused-ignore]

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc, no-any-unimported, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("[")[2].partition(".")[0]

    return ByGroup(config, log)


class _Results:
    """Collects the results of all workers, and reports them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[Result] = []
        self.torch = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY:
                found = json.loads(str(value))
                self.results.append(Result.from_json(found["result"]))
                self.torch = self.torch or found["torch"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from .reports import json as file, terminal

        if not self.results:
            return
        config = self.config
        level = Level.parse(config.getoption("conformance_level"))
        selected = any(config.getoption(name) for name in ("keyword", "markexpr", "deselect")) or _ids(config.args)
        ordered = sorted(self.results, key=lambda each: (each.level, each.id))
        summary = Summary(config.getoption("conformance_device"), self.torch, ordered, level, selected=bool(selected))
        terminalreporter.section("conformance")
        terminalreporter.write_line("\n".join(terminal.counts(summary)))
        destination = config.getoption("conformance_json")
        if destination:
            file.write(summary, Path(config.invocation_params.dir, destination))


def _ids(args: Sequence[str]) -> bool:
    return any("::" in each for each in args)


def _asked_for(args: Sequence[object]) -> bool:
    return any(str(each).startswith("backend_conformance") for each in args)


def pytest_configure(config: pytest.Config) -> None:
    if _asked_for(config.invocation_params.args) and not config.getoption("conformance_device", None):
        raise pytest.UsageError("the checks require --device NAME")
    if config.getoption("conformance_device", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Results(config), "backend_conformance_results")
