"""For every operator: the n-th call gives the same error at the same place as the first and as the CPU's, whatever
other threads and streams do. Only what elements decide may be late.

Calls that numbers make bad are listed in `bad_numbers.py`; calls in threads are made by `bad_calls_of_threads.py`. All
of PyTorch's operator database with one argument changed at a time: `tests/census/perturbed.py`, here by a slice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import waits
from as_cpu import sentence
from bad_calls_of_threads import INNOCENT, BadCall, assert_errors_stay
from bad_numbers import CASES, check, late_error
from censuses import run_census
from devices import DEVICE

HERE = Path(__file__).resolve().parent
CALLS = 50  # in each thread


@pytest.fixture(autouse=True)
def _a_failure_poisons_no_other_test() -> Iterator[None]:
    yield
    while late_error() is not None:
        pass


# Numbers


@pytest.mark.any_device
@pytest.mark.parametrize("good_calls_before", [0, 1, 9])
@pytest.mark.parametrize("name", CASES)
def test_a_bad_number_raises_at_the_call_whatever_was_called_before(name, good_calls_before):
    if DEVICE == "cuda" and name.startswith(("addmm", "addmv", "baddbmm")):
        pytest.skip("CUDA multiplies no integers")
    check(CASES[name], good_calls_before, size=good_calls_before + 3)  # a size of its own: nothing is known of it


def test_a_bad_number_raises_at_the_first_call_of_a_process(run_python):
    result = run_python(
        """
from bad_numbers import CASES, check, late_error
for name, case in CASES.items():
    try:
        check(case, good_calls_before=0, size=4)
    except AssertionError as error:
        print(f"{name}: {error}")
        while late_error() is not None:
            pass
""",
        path=[HERE, HERE.parent],
    )
    assert result.stdout == ""


# Threads


@pytest.mark.parametrize("streams_apart", [False, True], ids=["one stream", "streams apart"])
@pytest.mark.parametrize("innocent", INNOCENT)
@pytest.mark.parametrize("bad", ["mm", "renorm"])
def test_an_error_is_raised_in_the_thread_that_called(bad, innocent, streams_apart):
    assert_errors_stay([bad], [innocent], CALLS, streams_apart)


@pytest.mark.parametrize("streams_apart", [False, True], ids=["one stream", "streams apart"])
def test_errors_of_four_threads_stay_away_from_four_others(streams_apart):
    assert_errors_stay(
        ["mm", "argmax", "renorm", "add"], ["item", "synchronize", "arithmetic", "copy"], 50, streams_apart
    )
    assert_errors_stay(["mm", "mm", "lgamma", "remainder"], ["synchronize", "item"] * 2, CALLS, streams_apart)


@pytest.mark.parametrize("streams_apart", [False, True], ids=["one stream", "streams apart"])
def test_errors_are_raised_in_the_thread_that_called_where_launches_block(run_python, streams_apart):
    result = run_python(
        f"""
from bad_calls_of_threads import errors_gone_astray
for bad in ("mm", "renorm", "add"):
    for innocent in ("item", "synchronize", "arithmetic"):
        astray = errors_gone_astray([bad], [innocent], {CALLS}, {streams_apart})
        if astray:
            print(bad, innocent, len(astray), *astray[:2])
astray = errors_gone_astray(["mm", "argmax", "renorm", "add"], ["item", "synchronize"] * 2, {CALLS}, {streams_apart})
print(*astray[:5], sep="\\n", end="")
""",
        path=[HERE, HERE.parent],
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )
    assert result.stdout == ""


@pytest.mark.parametrize("bad", ["mm", "lgamma", "argmax", "add"])
def test_what_is_refused_whatever_the_elements_are_raises_without_a_wait(bad):
    expected = BadCall(bad, "cpu").error()
    call = BadCall(bad, "openreg")
    for _ in range(3):
        torch.accelerator.synchronize()
        with waits.no_waits():
            got = call.error()
        assert type(got) is type(expected) and sentence(got) == sentence(expected), repr(got)


# Time


def milliseconds(call: Callable[..., Any], arguments: tuple[torch.Tensor, ...]) -> float:
    """The median of fifty calls that fail."""
    times = []
    for _ in range(50):
        start = time.perf_counter()
        with pytest.raises(RuntimeError):
            call(*arguments)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


@pytest.mark.parametrize("size", [2, 512])
@pytest.mark.parametrize(
    ("call", "make"),
    [
        pytest.param(torch.mm, lambda n: (torch.ones(n, n, dtype=torch.bool),) * 2, id="mm-bools"),
        pytest.param(torch.add, lambda n: (torch.ones(n, n), torch.ones(n + 1)), id="add-shapes"),
        pytest.param(torch.lgamma, lambda n: (torch.ones(n, n, dtype=torch.complex64),), id="lgamma-complex"),
        pytest.param(torch.bitwise_and, lambda n: (torch.ones(n, n),) * 2, id="bitwise_and-floats"),
    ],
)
def test_raising_costs_at_most_a_millisecond(call, make, size):
    arguments = make(size)
    there = tuple(tensor.to("openreg") for tensor in arguments)
    torch.accelerator.synchronize()
    assert milliseconds(call, there) < max(1.0, 3 * milliseconds(call, arguments))


# PyTorch's operator database


def test_calls_with_one_argument_changed_answer_as_the_cpu_in_a_slice(tmp_path):
    results = run_census(tmp_path, "--slice", "--samples", "1", program="perturbed.py")
    assert sum(result["samples"] for result in results) >= 500


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_calls_with_one_argument_changed_answer_as_the_cpu(tmp_path):
    results = run_census(tmp_path, program="perturbed.py")
    assert sum(result["samples"] for result in results) >= 10000
