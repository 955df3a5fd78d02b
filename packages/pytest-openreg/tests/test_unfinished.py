"""What a test leaves unfinished on the device is ended and reported in that test; the next tests find it usable."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from suite import Result, has, run_suite

pytest.importorskip("pytest_openreg", reason="pytest-openreg is not installed; pip install packages/pytest-openreg")

# After each test that leaves something, one that finds the device as it was.
CAPTURES = """
import threading

import pytest
import torch

graphs, kept = [], []


def begin(device="openreg", mode="global"):
    torch.accelerator.set_device_index(torch.device(device).index or 0)
    torch.accelerator.set_stream(torch.Stream(device))
    graphs.append(torch.openreg.CUDAGraph())
    graphs[-1].capture_begin(capture_error_mode=mode)
    torch.zeros(2, device=device) + 1


def capturing():
    with torch.openreg.graph(torch.openreg.CUDAGraph()):
        yield torch.zeros(2, device="openreg") + 1


@pytest.fixture(autouse=True)
def the_device_is_usable(openreg):
    assert not torch.openreg.is_current_stream_capturing()
    assert torch.accelerator.current_device_index() == 0 and torch.accelerator.current_stream().stream_id == 0
    for index in range(2):
        assert torch.ones(3, device=f"openreg:{index}").sum().item() == 3
        torch.accelerator.synchronize(index)
    graphs.clear()
    assert torch.openreg.memory_allocated(1) == 0


@pytest.fixture
def that_captures():
    with torch.openreg.graph(torch.openreg.CUDAGraph()):
        yield


@pytest.fixture
def that_begins():
    begin()


@pytest.fixture
def that_begins_late():
    yield
    begin()


@pytest.fixture
def that_begins_and_fails():
    begin()
    raise ValueError("the fixture's")


def test_fails():
    begin()
    assert 1 == 2


def test_passes():
    begin()


def test_skips():
    begin()
    pytest.skip("not today")


@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail():
    begin()
    assert 0


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_of_another_mode(mode):
    begin(mode=mode)


def test_on_device_1():
    begin("openreg:1")


def test_in_another_thread():
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()


def test_in_a_thread_that_goes_on():
    begun, go_on = threading.Event(), threading.Event()

    def capture():
        with pytest.raises(torch.AcceleratorError, match="abandoned"), torch.openreg.graph(torch.openreg.CUDAGraph()):
            begun.set()
            go_on.wait()
            torch.ones(2, device="openreg")

    kept.extend([go_on, threading.Thread(target=capture)])
    kept[-1].start()
    begun.wait()


def test_that_thread_ends():
    go_on, thread = kept[-2:]
    go_on.set()
    thread.join()


def test_several():
    begin()
    begin("openreg:1")


def test_in_an_abandoned_generator():
    kept.append(capturing())
    next(kept[-1])


def test_generator_is_closed_late():
    kept.pop().close()


def test_in_a_generator_that_is_freed():
    next(capturing())


def test_spoilt():
    begin()
    with pytest.raises(RuntimeError):
        torch.ones(2, device="openreg").sum().item()


def test_graph_of_the_accelerator():
    torch.accelerator.set_stream(torch.Stream("openreg"))
    graphs.append(torch.accelerator.Graph())
    graphs[-1].capture_begin()


def test_with_an_error_before():
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))
    begin()


def test_of_a_fixture(that_captures):
    torch.ones(2, device="openreg")


def test_of_a_fixture_and_its_own(that_captures):
    torch.ones(2, device="openreg")
    begin()


def test_fails_with_a_fixture(that_captures):
    assert 1 == 2


def test_begun_by_a_fixture(that_begins):
    pass


def test_begun_late_by_a_fixture(that_begins_late):
    pass


def test_begun_by_a_fixture_that_fails(that_begins_and_fails):
    pass


def test_last():
    pass
"""

UNFINISHED = "openreg: captures of graphs that the test did not end\nthe capture of stream "


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_suite(tmp_path_factory.mktemp("captures"), CAPTURES, "--openreg")


EXPECTED = {
    "test_fails": "failed",
    "test_passes": "failed",
    "test_skips": "failed",
    "test_is_expected_to_fail": "skipped",
    "test_of_another_mode[thread_local]": "failed",
    "test_of_another_mode[relaxed]": "failed",
    "test_on_device_1": "failed",
    "test_in_another_thread": "failed",
    "test_in_a_thread_that_goes_on": "failed",
    "test_that_thread_ends": "passed",
    "test_several": "failed",
    "test_in_an_abandoned_generator": "failed",
    "test_generator_is_closed_late": "passed",
    "test_in_a_generator_that_is_freed": "passed",
    "test_spoilt": "failed",
    "test_graph_of_the_accelerator": "failed",
    "test_with_an_error_before": "failed",
    "test_of_a_fixture": "passed",
    "test_of_a_fixture_and_its_own": "error",  # the fixture finds another stream than its own
    "test_fails_with_a_fixture": "failed",
    "test_begun_by_a_fixture": "error",
    "test_begun_late_by_a_fixture": "error",
    "test_begun_by_a_fixture_that_fails": "error",
    "test_last": "passed",
}


def test_captures_fail_the_tests_that_left_them(captures: Result) -> None:
    assert captures.outcomes == EXPECTED, captures.output


@pytest.mark.parametrize(
    ("test", "patterns"),
    [
        ("test_fails", ["assert 1 == 2", UNFINISHED, r"of openreg:0, begun by \S+inner.py:\d+ in begin"]),
        ("test_passes", [UNFINISHED]),
        ("test_on_device_1", [UNFINISHED, "of openreg:1"]),
        ("test_several", [UNFINISHED, "of openreg:0", "of openreg:1"]),
        ("test_with_an_error_before", [UNFINISHED, "did not collect", "index_select failed on openreg:0, stream 0"]),
        ("test_begun_by_a_fixture_that_fails", ["the fixture's"]),
    ],
)
def test_the_report_says(captures: Result, test: str, patterns: list[str]) -> None:
    assert has(captures.texts[test], *patterns), captures.texts[test]


STATE = """
import pytest
import torch


@pytest.fixture(autouse=True)
def the_device_is_as_it_was(openreg):
    assert torch.openreg.get_sync_debug_mode() == 0
    assert torch.openreg.get_per_process_memory_fraction(1) == 1
    assert not torch.autograd._profiler_enabled()
    assert torch.ones(2, device=openreg).sum().item() == 2


def test_sync_debug_mode():
    torch.openreg.set_sync_debug_mode("error")


def test_fraction():
    torch.openreg.set_per_process_memory_fraction(0.5, 1)


def test_profiler():
    torch.profiler.profile().start()


def test_recorded_memory():
    torch.openreg.memory._record_memory_history()
    torch.ones(2, device="openreg")


def test_last():
    with torch.profiler.profile() as profile:
        torch.ones(2, device="openreg") + 1
    assert any(event.name == "aten::add" for event in profile.events())
"""


def test_state_of_the_device_is_restored(tmp_path: Path) -> None:
    result = run_suite(tmp_path, STATE, "--openreg")
    assert set(result.outcomes.values()) == {"passed"} and len(result.outcomes) == 5, result.output


@pytest.mark.full
def test_a_changed_state_is_a_leak(tmp_path: Path) -> None:
    result = run_suite(tmp_path, STATE, "--openreg-leaks")
    leaks = {
        "test_sync_debug_mode": r"the synchronisation debug mode is still 2 \(it was 0\)",
        "test_fraction": r"the memory of openreg:1 is still limited to 0.5 of it \(it was 1.0\)",
        "test_profiler": "the profiler still runs",
    }
    assert {test for test, outcome in result.outcomes.items() if outcome == "error"} == set(leaks), result.output
    assert all(has(result.texts[test], words) for test, words in leaks.items())


WAITS = """
import pytest
import torch


@pytest.mark.openreg
def test_waits_for_ever():
    torch.accelerator.set_device_index(1)
    torch.openreg._sleep(10**15)


@pytest.mark.openreg
def test_of_a_device_that_is_busy():
    raise AssertionError("runs")


def test_that_does_not_use_it():
    pass
"""


def test_a_wait_without_end_fails_the_test_and_those_after_it(tmp_path: Path) -> None:
    result = run_suite(tmp_path, WAITS, "-o", "openreg_timeout=0.1")
    assert result.outcomes == {
        "test_waits_for_ever": "error",
        "test_of_a_device_that_is_busy": "error",
        "test_that_does_not_use_it": "passed",
    }, result.output
    assert has(result.texts["test_waits_for_ever"], "openreg:1 has not completed its work within 0.1 s")
    assert has(result.texts["test_of_a_device_that_is_busy"], "has not completed the work of an earlier test")


def test_a_device_that_becomes_idle_is_usable_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_openreg import outstanding

    released, waits = threading.Event(), []

    def synchronize(index: int) -> None:
        waits.append(index)
        released.wait()
        if len(waits) == 1:
            raise torch.AcceleratorError("an error that nobody collected")

    module = SimpleNamespace(synchronize=synchronize, device_count=lambda: 1)
    monkeypatch.setattr(outstanding, "used_module", lambda: module)
    monkeypatch.setattr(outstanding, "_waits", {})
    for _ in range(2):  # the second time it does not wait again
        (error,) = outstanding.uncollected_errors(0.01)
        assert "openreg:0 has not completed its work" in error
        assert outstanding.is_busy() and waits == [0]
    released.set()
    assert outstanding._waits[0].ends_within(60)
    assert not outstanding.is_busy()
    assert outstanding.uncollected_errors(60) == ["an error that nobody collected"]
    assert outstanding.uncollected_errors(60) == [] and waits == [0, 0, 0]


def test_errors_without_end_are_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_openreg import outstanding

    def synchronize(index: int) -> None:
        raise torch.AcceleratorError("again")

    module = SimpleNamespace(synchronize=synchronize, device_count=lambda: 1)
    monkeypatch.setattr(outstanding, "used_module", lambda: module)
    assert outstanding.uncollected_errors(60) == ["again"] * outstanding.ERRORS


def test_a_malformed_timeout_ends_the_run(tmp_path: Path) -> None:
    result = run_suite(tmp_path, "def test(): pass", "-o", "openreg_timeout=soon")
    assert result.status == pytest.ExitCode.USAGE_ERROR
    assert "invalid openreg_timeout (got 'soon', expected a number of seconds)" in result.output
