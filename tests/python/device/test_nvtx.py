"""Ranges of ``torch.openreg.nvtx``, as PyTorch's profiler shows them."""

from __future__ import annotations

import threading

import pytest
from torch.openreg import nvtx
from torch.profiler import ProfilerActivity, profile


def ranges(work) -> dict[str, tuple[float, float]]:
    """Begin and end of each range that is seen during `work`, by its name."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    return {event.name: (event.time_range.start, event.time_range.end) for event in seen.events()}


def test_pushed_ranges_nest():
    def work():
        assert nvtx.range_push("outer") == 0
        assert nvtx.range_push("inner") == 1
        assert nvtx.range_pop() == 1
        assert nvtx.range_pop() == 0
        assert nvtx.range_pop() == -1

    seen = ranges(work)
    assert seen["outer"][0] <= seen["inner"][0] <= seen["inner"][1] <= seen["outer"][1]


def test_each_thread_has_its_own_ranges():
    depths = []
    nvtx.range_push("of the main thread")
    thread = threading.Thread(target=lambda: depths.append(nvtx.range_push("of another thread")))
    thread.start()
    thread.join()
    assert depths == [0]
    assert nvtx.range_pop() == 0


def test_started_ranges_end_by_their_number():
    def work():
        first, second = nvtx.range_start("first"), nvtx.range_start("second")
        assert first != second
        nvtx.range_end(second)
        nvtx.range_end(first)
        nvtx.range_end(first)

    assert {"first", "second"} <= ranges(work).keys()


def test_a_range_is_a_context_and_a_decorator():
    @nvtx.range("decorated")
    def work():
        with pytest.raises(ZeroDivisionError), nvtx.range("step {} of {of}", 3, of=4):
            _ = 1 / 0
        nvtx.mark("a mark")

    assert {"decorated", "step 3 of 4", "a mark"} <= ranges(work).keys()
    assert nvtx.range_pop() == -1  # all have ended
