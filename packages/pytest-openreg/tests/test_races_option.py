"""--openreg-races fails the tests that race, and only those."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

pytest_plugins = ["pytester"]
import torch

def two_streams(waits):
    x = torch.zeros(100, device="openreg")
    side = torch.openreg.Stream()
    if waits:
        side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        return x + 1

def test_waits():
    assert torch.openreg.get_race_detection_mode() == "error"
    two_streams(True)

def test_races():
    two_streams(False)

def test_catches_the_error():
    with pytest.raises(RuntimeError):
        two_streams(False)

@pytest.mark.openreg(races=False)
def test_is_exempt():
    assert torch.openreg.get_race_detection_mode() == "off"
    two_streams(False)

def test_reads_pinned_memory_too_early():
    host = torch.empty(100, pin_memory=True)
    host.copy_(torch.zeros(100, device="openreg"), non_blocking=True)
    host.sum()
"""


def test_tests_that_race_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--openreg-races", "-rA")
    result.assert_outcomes(passed=2, failed=3)
    passed = {line.split("::")[1] for line in result.outlines if line.startswith("PASSED")}
    assert passed == {"test_waits", "test_is_exempt"}
    result.stdout.fnmatch_lines(["*UnsynchronizedAccessError: openreg: unsynchronized accesses to the same memory:"])
    result.stdout.fnmatch_lines(["openreg: the test caught the error that reported a race"])
    result.stdout.fnmatch_lines(
        ["*aten::add.Tensor reads `self` (100 elements, float32) on stream *, launched by *:12 in *"]
    )
    result.stdout.fnmatch_lines(["*the host read pinned memory before it waited for the copy that writes it*"])


def test_the_option_is_off_by_default(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import torch\n\ndef test_it():\n    assert torch.openreg.get_race_detection_mode() == 'off'\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--openreg").assert_outcomes(passed=1)


def test_a_marker_requests_it_for_one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest, torch\n\n@pytest.mark.openreg(races=True)\ndef test_it():\n"
        "    assert torch.openreg.get_race_detection_mode() == 'error'\n"
        "\ndef test_other():\n    assert torch.openreg.get_race_detection_mode() == 'off'\n"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
