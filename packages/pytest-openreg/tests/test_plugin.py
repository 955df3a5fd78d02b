"""The plugin as test suites see it. Tests that need a separate run are slow, and marked `full`."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from suite import Result, has, run_suite

pytest_plugins = ["pytester"]

requested = pytest.importorskip(
    "pytest_openreg.request", reason="pytest-openreg is not installed; pip install packages/pytest-openreg"
)
openreg = pytest.mark.openreg
openreg_fault = pytest.mark.openreg_fault
SETTINGS = Path(__file__).parents[3] / "docs/settings.md"

SUITE = """
import warnings

import pytest
import torch

kept = []


def fail(index=5):
    torch.ones(2, device="openreg").index_select(0, torch.tensor([index], device="openreg"))


@pytest.fixture(scope="module")
def weights():
    return torch.ones(1000, device="openreg")


@pytest.fixture
def batch():
    return torch.ones(1000, device="openreg")


@pytest.fixture
def fixture_that_fails_late():
    fail()


def test_leaves_an_error():
    fail()


def test_is_not_to_blame():
    torch.accelerator.synchronize()


def test_leaves_an_error_on_another_stream_and_device():
    torch.accelerator.set_device_index(1)
    torch.accelerator.set_stream(torch.Stream("openreg:1"))
    torch.ones(2, device="openreg:1").index_select(0, torch.tensor([9], device="openreg:1"))


def test_finds_device_and_stream_as_they_were():
    assert torch.accelerator.current_device_index() == 0
    assert torch.openreg.current_stream(1).stream_id == 0


def test_leaves_two_errors():
    for stream in (torch.Stream("openreg"), torch.Stream("openreg")):
        with stream:
            fail()


def test_collects_its_error():
    fail()
    with pytest.raises(torch.AcceleratorError):
        torch.accelerator.synchronize()


def test_fails_and_leaves_an_error():
    fail()
    assert 1 == 2


def test_skips_after_an_error():
    fail()
    pytest.skip("not today")


@pytest.mark.xfail(reason="known")
def test_is_expected_to_leave_an_error():
    fail()


@pytest.mark.usefixtures("fixture_that_fails_late")
def test_whose_fixture_fails():
    pass


@pytest.mark.openreg(leaks=True)
def test_uses_memory_of_fixtures(weights, batch):
    assert (weights + batch).sum().item() == 2000


@pytest.mark.openreg(leaks=True)
def test_leaves_a_cycle():
    cycle = [torch.ones(1000, device="openreg")]
    cycle.append(cycle)


@pytest.mark.openreg(leaks=True)
def test_leaks_memory():
    kept.append(torch.ones(1000, device="openreg"))


@pytest.mark.openreg(leaks=True)
def test_leaks_a_stream():
    torch.accelerator.set_stream(torch.Stream("openreg"))


@pytest.mark.openreg(leaks=True)
def test_leaks_a_device():
    torch.accelerator.set_device_index(1)


@pytest.mark.openreg(leaks=True)
def test_fails_and_keeps_memory():
    x = torch.ones(1000, device="openreg")
    assert not len(x)


def test_may_keep_memory():
    kept.append(torch.ones(1000, device="openreg"))


@pytest.mark.openreg(sync_debug="error")
def test_must_not_wait():
    torch.ones(2, device="openreg").cpu()


def test_may_wait():
    torch.ones(2, device="openreg").cpu()


def test_has_the_fixture(openreg):
    assert torch.ones(2, device=openreg).device == openreg


@pytest.mark.openreg(devices=3, memory="256MiB")
def test_fails_in_a_separate_process(openreg, weights, tmp_path, record_property):
    print("printed there")
    warnings.warn("careful", stacklevel=1)
    record_property("devices", torch.accelerator.device_count())
    assert torch.openreg.mem_get_info()[1] == 2**28
    (tmp_path / "file").touch()
    number = torch.accelerator.device_count()
    assert number == 4
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("watched") / "_pytest/torch"  # of these names, but not pytest's or PyTorch's
    folder.mkdir(parents=True)
    return run_suite(folder, SUITE, "--openreg")


EXPECTED = {
    "test_leaves_an_error": "failed",
    "test_is_not_to_blame": "passed",
    "test_leaves_an_error_on_another_stream_and_device": "failed",
    "test_finds_device_and_stream_as_they_were": "passed",
    "test_leaves_two_errors": "failed",
    "test_collects_its_error": "passed",
    "test_fails_and_leaves_an_error": "failed",
    "test_skips_after_an_error": "failed",
    "test_is_expected_to_leave_an_error": "skipped",
    "test_whose_fixture_fails": "error",
    "test_uses_memory_of_fixtures": "passed",
    "test_leaves_a_cycle": "passed",
    "test_leaks_memory": "error",
    "test_leaks_a_stream": "error",
    "test_leaks_a_device": "error",
    "test_fails_and_keeps_memory": "failed",
    "test_may_keep_memory": "passed",
    "test_must_not_wait": "failed",
    "test_may_wait": "passed",
    "test_has_the_fixture": "passed",
    "test_fails_in_a_separate_process": "failed",
}


def test_each_test_has_its_own_outcome(watched: Result) -> None:
    assert watched.outcomes == EXPECTED, watched.output
    assert watched.status == pytest.ExitCode.TESTS_FAILED


def test_the_header_names_the_device(watched: Result) -> None:
    assert re.search(r"^openreg: torch_openreg \S+ for torch \S+, \d+ x \d+ MiB$", watched.output, re.M)


@pytest.mark.parametrize(
    ("test", "patterns"),
    [
        (
            "test_leaves_an_error",
            [
                r"did not collect\nopenreg: aten::index_select failed on openreg:0, stream 0",
                r"by \S+inner.py:\d+ in fail",
            ],
        ),
        ("test_leaves_an_error_on_another_stream_and_device", [r"index_select failed on openreg:1, stream \d+"]),
        ("test_leaves_two_errors", ["index_select failed on openreg:0, stream", "index_select failed on openreg:0"]),
        ("test_fails_and_leaves_an_error", ["assert 1 == 2", "did not collect", "index_select failed on openreg:0"]),
        ("test_whose_fixture_fails", ["index_select failed on openreg:0"]),
        (
            "test_leaks_memory",
            ["4096 bytes of openreg:0", r"4000 bytes, allocated at \S+test_inner.py:\d+ in test_leaks"],
        ),
        ("test_leaks_a_stream", [r"stream \d+ of openreg:0 is still current \(it was 0\)"]),
        ("test_leaks_a_device", [r"device 1 is still current \(it was 0\)"]),
        ("test_must_not_wait", ["called a synchronizing openreg operation"]),
    ],
)
def test_the_report_says(watched: Result, test: str, patterns: list[str]) -> None:
    assert has(watched.texts[test], *patterns), watched.texts[test]


def test_a_test_in_a_separate_process_is_reported_as_if_it_had_run_here(watched: Result) -> None:
    text = watched.texts["test_fails_in_a_separate_process"]
    assert has(text, "number = torch.accelerator.device_count", "assert 3 == 4", r"test_inner.py:\d+: AssertionError")
    assert "printed there" in text
    assert has(watched.output, "warnings summary", "test_fails_in_a_separate_process", "UserWarning: careful")


def test_nothing_is_imported_or_changed_unless_requested(tmp_path: Path) -> None:
    source = """
import os, sys
def test_nothing(request):
    assert "torch" not in sys.modules and "torch_openreg" not in sys.modules
    assert "TORCH_OPENREG_STACKS" not in os.environ
    assert "pytest_openreg.plugin" in sys.modules
"""
    assert run_suite(tmp_path, source).outcomes == {"test_nothing": "passed"}


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        (openreg(4), "the marker accepts keywords only (got 4)"),
        (openreg(device=4), "unknown keyword (got 'device', expected one of devices, memory, "),
        (openreg(devices=[4]), "invalid devices (got [4], expected a number or a string)"),
        (openreg(leaks=1), "invalid leaks (got 1, expected True or False)"),
        (openreg(sync_debug="loud"), "invalid sync_debug (got 'loud', expected one of default, warn, error)"),
        (openreg_fault(), "invalid openreg_fault: it takes specifications, as in "),
        (openreg_fault(times=2), "invalid openreg_fault: it takes specifications, as in "),
    ],
)
def test_a_malformed_marker_is_rejected(marker: pytest.MarkDecorator, problem: str) -> None:
    item = SimpleNamespace(nodeid="test_it", iter_markers=lambda name: [marker] if marker.name == name else [])
    with pytest.raises(pytest.UsageError, match=re.escape(f"openreg: test_it: {problem}")):
        requested.check_marker(item)


def test_a_rejected_marker_ends_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.openreg(device=4)\ndef test_it(): pass\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: openreg: *test_it: unknown keyword (got 'device', expected one of devices, *"])


def test_the_marker_accepts_all_settings() -> None:
    documented = re.findall(r"^\| `TORCH_OPENREG_(\w+)`", SETTINGS.read_text(), re.M)
    assert {name.lower() for name in documented} - {"autoload", "fits"} <= set(
        requested.SETTINGS
    )  # the command sets it


ABSENT = """
import pytest
def test_by_fixture(openreg): assert 0
@pytest.mark.openreg
def test_by_marker(): assert 0
@pytest.mark.openreg(devices=3)
def test_with_settings(): assert 0
def test_without(): pass
"""


@pytest.mark.full
def test_tests_that_request_the_device_are_skipped_if_it_is_missing(tmp_path: Path) -> None:
    result = run_suite(tmp_path, ABSENT, TORCH_OPENREG_AUTOLOAD="off")
    asking = ("test_by_fixture", "test_by_marker", "test_with_settings")
    assert result.outcomes == {**dict.fromkeys(asking, "skipped"), "test_without": "passed"}
    reason = "`import torch` did not load the device; `python -m torch_openreg` prints the reason"
    assert all(reason in result.texts[test] for test in asking)


@pytest.mark.full
def test_tests_that_request_the_device_are_skipped_if_the_package_is_missing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'torch_openreg' else find(name)\n"
    )
    result = run_suite(tmp_path, ABSENT)
    assert "openreg: torch_openreg is not installed" in result.texts["test_with_settings"]
    assert result.outcomes["test_with_settings"] == "skipped"


@pytest.mark.full
def test_the_option_ends_the_run_if_the_device_is_missing(tmp_path: Path) -> None:
    result = run_suite(tmp_path, ABSENT, "--openreg", TORCH_OPENREG_AUTOLOAD="off")
    assert result.status == pytest.ExitCode.USAGE_ERROR
    assert "did not load the device" in result.output and "--openreg requires the device" in result.output


ISOLATED = """
import os
import unittest

import pytest

pytestmark = pytest.mark.openreg(devices=3)
torn_down = []


@pytest.fixture(scope="module")
def of_module():
    yield
    torn_down.append(os.getpid())


@pytest.fixture
def that_fails():
    raise ValueError("the fixture's")


@pytest.mark.openreg(devices=2, engines=1)
def test_the_function_overrides_the_module():
    import torch
    assert torch.accelerator.device_count() == 2
    assert torch.openreg.get_device_properties(0).engines == 1


@pytest.mark.parametrize("text", ["a::b", "[c]"])
def test_parameters(text, of_module, worker_id):
    import torch
    assert torch.accelerator.device_count() == 3


def test_skips():
    pytest.skip("not today")


@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail():
    assert 0


@pytest.mark.usefixtures("that_fails")
def test_whose_fixture_fails():
    pass


def test_dies():
    os.abort()


def test_exits():
    os._exit(3)


@pytest.mark.timeout(3)
def test_hangs():
    import threading
    threading.Event().wait()


def test_leaves_an_error():
    import torch
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))


class TestOfUnittest(unittest.TestCase):
    def test_method(self):
        import torch
        self.assertEqual(torch.accelerator.device_count(), 3)


@pytest.mark.openreg(debug_memory=True)
def test_debugs_memory():
    import torch
    assert torch.empty(4, device="openreg").isnan().all()


@pytest.mark.openreg(devices="many")
def test_malformed(openreg):
    pass


def test_has_the_options(pytestconfig, tmp_path_factory):
    assert pytestconfig.option.verbose == 1
    assert pytestconfig.getoption("--mine") == "value"
    tmp_path_factory.getbasetemp()
"""

OUTCOMES_OF_ISOLATED = {
    "test_the_function_overrides_the_module": "passed",
    "test_parameters[a::b]": "passed",
    "test_parameters[[c]]": "passed",
    "test_skips": "skipped",
    "test_is_expected_to_fail": "skipped",
    "test_whose_fixture_fails": "error",
    "test_dies": "failed",
    "test_exits": "failed",
    "test_hangs": "failed",
    "test_leaves_an_error": "failed",
    "test_method": "passed",
    "test_debugs_memory": "passed",
    "test_malformed": "error",
    "test_has_the_options": "passed",
}


@pytest.mark.parametrize(
    ("status", "cause"), [(3, "exited with status 3"), (-6, "was killed by SIGABRT"), (-40, "was killed by signal 40")]
)
def test_the_end_of_a_process_is_described(status: int, cause: str) -> None:
    from pytest_openreg import isolation

    assert cause in isolation._cause_of_death(status)


def test_the_sync_debug_mode_of_the_program_is_restored() -> None:
    import torch

    from pytest_openreg import device

    module = torch.get_device_module("openreg")
    module.set_sync_debug_mode("warn")
    try:
        before = device.set_sync_debug_mode("error")
        assert module.get_sync_debug_mode() == 2
        device.set_sync_debug_mode(before)
        assert module.get_sync_debug_mode() == 1
    finally:
        module.set_sync_debug_mode("default")


@pytest.mark.full
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_processes_of_single_tests(tmp_path: Path, workers: list[str]) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed")
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--mine')\n")
    base = tmp_path / "base"
    result = run_suite(tmp_path, ISOLATED, "-v", "--mine=value", f"--basetemp={base}", *workers)
    assert result.outcomes == OUTCOMES_OF_ISOLATED, result.output
    assert has(
        result.texts["test_dies"], "the test's process was killed by SIGABRT", "Fatal Python error", "in test_dies"
    )
    assert "the test's process exited with status 3" in result.texts["test_exits"]
    assert "Timeout" in result.texts["test_hangs"]
    assert "ValueError: the fixture's" in result.texts["test_whose_fixture_fails"]
    assert "index_select failed on openreg:0, stream 0" in result.texts["test_leaves_an_error"]
    assert "TORCH_OPENREG_DEVICES is malformed (got" in result.texts["test_malformed"]


@pytest.mark.full
def test_watches_in_the_workers_of_xdist(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    result = run_suite(tmp_path, SUITE, "--openreg", "-n", "2")
    assert result.outcomes == EXPECTED, result.output


@pytest.mark.full
def test_fixtures_of_a_module_are_torn_down_after_its_last_test_even_if_that_ran_elsewhere(tmp_path: Path) -> None:
    module = """
import pytest
@pytest.fixture(scope="module")
def of_module():
    yield
    raise ValueError("torn down")
def test_here(of_module): pass
@pytest.mark.openreg(devices=3)
def test_elsewhere(): pass
"""
    (tmp_path / "test_next.py").write_text("def test_next(): pass\n")
    result = run_suite(tmp_path, module)
    assert result.outcomes == {"test_here": "passed", "test_elsewhere": "error", "test_next": "passed"}
    assert "torn down" in result.texts["test_elsewhere"]


@pytest.mark.full
def test_a_malformed_setting_ends_a_run_that_requests_the_device(tmp_path: Path) -> None:
    result = run_suite(tmp_path, ABSENT, "--openreg", TORCH_OPENREG_MEMORY="lots")
    assert result.status == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: openreg: TORCH_OPENREG_MEMORY is malformed" in result.output


OPTIONS = """
import os
import torch
kept = []
def test_memory(): assert torch.empty(4, device="openreg").isnan().all()
def test_waits(): torch.ones(2, device="openreg").cpu()
def test_leaks(): kept.append(torch.ones(2, device="openreg"))
def test_stacks(): assert os.environ["TORCH_OPENREG_STACKS"] == "0"
def test_leaks_a_group(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group(store=store, rank=0, world_size=1)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "different"),
    [
        (["--openreg-debug-memory"], {"test_memory": "passed"}),
        (["--openreg-leaks"], {"test_leaks": "error", "test_leaks_a_group": "error"}),
        (["--openreg-sync-debug=error"], {"test_waits": "failed", "test_memory": "failed"}),
    ],
)
def test_options(tmp_path: Path, options: list[str], different: dict[str, str]) -> None:
    result = run_suite(tmp_path, OPTIONS, *options, TORCH_OPENREG_STACKS="0")
    usual = {f"test_{name}": "passed" for name in ("waits", "leaks", "stacks", "leaks_a_group")}
    assert result.outcomes == {"test_memory": "failed"} | usual | different, result.output


UNITTEST = """
import threading
import unittest
from unittest.mock import patch

import pytest
import torch


def fail():
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))


def test_raises_the_skip_of_unittest():
    fail()
    raise unittest.SkipTest("not today")


class TestOfUnittest(unittest.TestCase):
    def test_leaves_an_error(self):
        fail()

    def test_skips_after_an_error(self):
        fail()
        self.skipTest("not today")

    def test_raises_a_skip_after_an_error(self):
        fail()
        raise unittest.SkipTest("not today")

    def test_fails_after_an_error(self):
        fail()
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_is_expected_to_fail(self):
        fail()
        self.assertEqual(1, 2)

    def test_skips(self):
        self.skipTest("not today")

    def test_passes(self):
        torch.accelerator.synchronize()


@pytest.mark.openreg(leaks=True)
class TestOfLeaks(unittest.TestCase):
    def test_fails_and_keeps_memory(self):
        x = torch.ones(1000, device="openreg")
        self.assertEqual(len(x), 1)


def test_starts_no_threads():
    torch.ones(2, device="openreg")
    patcher = patch("threading.Thread.start", lambda self: None)
    patcher.start()


def test_after_it():
    patch.stopall()
    torch.ones(2, device="openreg")


def test_replaces_functions_of_the_device(monkeypatch):
    torch.ones(2, device="openreg")
    for name in ("synchronize", "device_count", "memory_allocated", "current_device", "set_device", "is_initialized"):
        monkeypatch.setattr(torch.openreg, name, None)
"""


def test_what_unittest_and_mocks_hide(tmp_path: Path) -> None:
    result = run_suite(tmp_path, UNITTEST, "--openreg")
    assert result.outcomes == {
        "test_raises_the_skip_of_unittest": "failed",
        "test_leaves_an_error": "failed",
        "test_skips_after_an_error": "failed",
        "test_raises_a_skip_after_an_error": "failed",
        "test_fails_after_an_error": "failed",
        "test_is_expected_to_fail": "skipped",
        "test_skips": "skipped",
        "test_passes": "passed",
        "test_fails_and_keeps_memory": "failed",
        "test_starts_no_threads": "passed",
        "test_after_it": "passed",
        "test_replaces_functions_of_the_device": "passed",
    }, result.output
    for name in ("test_raises_the_skip_of_unittest", "test_skips_after_an_error", "test_fails_after_an_error"):
        assert "device errors that the test did not collect" in result.texts[name]
    assert "1 != 2" in result.texts["test_fails_after_an_error"]
