"""The kit can fail: each fault that is put into a working backend is found by the check that names it."""

from __future__ import annotations

from pathlib import Path

import kit_projects
import pytest
from sabotage.sabotages import SABOTAGES, Sabotage

from backend_conformance.result import Result
from backend_conformance.verdicts import Verdict

WITHOUT_PROFILER = "profiler.kernels_are_recorded"  # the project has none, and PyTorch profiles its device all the same

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> kit_projects.Project:
    made = kit_projects.Project(tmp_path_factory.mktemp("acme"))
    made.build()
    return made


@pytest.fixture(scope="session")
def intact(project: kit_projects.Project) -> dict[str, Result]:
    ids = {check for each in SABOTAGES for check in each.found_by}
    return kit_projects.check(project.package(), *sorted(ids), WITHOUT_PROFILER)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.name)
def test_a_fault_is_found_by_the_check_that_names_it(
    sabotage: Sabotage, project: kit_projects.Project, intact: dict[str, Result]
) -> None:
    for check in sabotage.found_by:
        assert intact[check].verdict is Verdict.PASS, intact[check]
    packages: Path = project.change(sabotage.name, sabotage.file, sabotage.old, sabotage.new)
    found = kit_projects.check(packages, *sabotage.found_by)
    for check in sabotage.found_by:
        assert found[check].verdict in (Verdict.WRONG, Verdict.CRASH, Verdict.HANG), found[check]


def test_a_process_group_that_returns_early_is_found(project: kit_projects.Project) -> None:
    check = "distributed.collectives_are_ordered_with_streams"
    groups = Path(__file__).parent / "sabotage/process_group.py"
    intact = kit_projects.check(project.package(), check, setup=f"{groups}:waits")[check]
    assert intact.verdict is Verdict.PASS, intact
    found = kit_projects.check(project.package(), check, setup=f"{groups}:returns_early")[check]
    assert found.verdict is Verdict.WRONG, found


def test_a_profile_without_events_of_the_device_is_found(intact: dict[str, Result]) -> None:
    assert intact[WITHOUT_PROFILER].verdict is Verdict.MISSING, intact[WITHOUT_PROFILER]
