"""A test for each check: pytest --pyargs backend_conformance --device NAME. Other processes load the backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from . import plugin
from .catalogue import Description
from .reports import terminal
from .result import Result
from .runner import CannotStart, Runner
from .session import Session
from .verdicts import Verdict


class Outcomes:
    """Runs a group when the first of its checks is asked for, and hands out results as they come."""

    def __init__(self, session: Session, chosen: list[Description]) -> None:
        self._session, self._chosen = session, chosen
        self._results: dict[str, Result] = {}
        self._failure = ""
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self._runner = Runner(
            session.device, session.setup, session.folder, patience=session.patience, report=self._take
        )

    @property
    def torch(self) -> str:
        return self._runner.torch

    def of(self, check: Description) -> Result:
        if check.group not in self._begun:
            self._begun.add(check.group)
            threading.Thread(target=self._run, args=(check.group,), daemon=True).start()
        with self._changed:
            while check.id not in self._results and not self._failure:
                self._changed.wait()
            return self._results.get(check.id) or Result.of(check, Verdict.ERROR, self._failure)

    def stop(self) -> None:
        self._runner.stop()

    def _run(self, group: str) -> None:
        chosen = [each for each in self._chosen if each.group == group]
        try:
            self._runner.run(self._session.applicable(chosen, self._take))
        except CannotStart as error:
            with self._changed:
                self._failure = f"the backend cannot be loaded: {error}"
                self._changed.notify_all()

    def _take(self, result: Result) -> None:
        judged = self._session.declarations.judge(result)
        with self._changed:
            self._results[result.id] = judged
            self._changed.notify_all()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    session = plugin.session_of(metafunc.config)
    checks = session.checks if session else []
    metafunc.parametrize("check", [pytest.param(each, id=each.id) for each in checks])


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    session = plugin.session_of(request.config)
    assert session is not None
    found = [getattr(item, "callspec", None) for item in request.session.items]
    checks = [each.params.get("check") for each in found if each]
    made = Outcomes(session, [each for each in checks if isinstance(each, Description)])
    yield made
    made.stop()


def test_check(check: Description, outcomes: Outcomes, request: pytest.FixtureRequest) -> None:
    result = outcomes.of(check)
    plugin.record(request.node, result, outcomes.torch)
    if result.verdict is Verdict.NOT_APPLICABLE:
        pytest.skip(result.message)
    if result.verdict is Verdict.DECLARED:
        pytest.xfail(result.message)
    if result.verdict.fails:
        session = plugin.session_of(request.config)
        assert session is not None
        pytest.fail("\n".join(terminal.failure(result, session.command())), pytrace=False)
