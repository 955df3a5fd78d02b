"""Fault injection in a test, and tests that are run again with each of their allocations failing."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from . import device, outstanding, request as requested

COUNTS_ALL = 2**63


@contextmanager
def of_marker(item: pytest.Item) -> Iterator[None]:
    """The faults that the test's markers request. Fails a test in which one of them did not occur."""
    specifications = requested.faults(item)
    if not specifications:
        yield
        return
    with ExitStack() as stack:
        injected = [stack.enter_context(_inject(each)) for each in specifications]
        yield
    if never := [fault for fault in injected if not fault.fired]:
        lines = [f"  {fault.spec} ({fault.counted} counted)" for fault in never]
        pytest.fail("\n".join(("openreg: faults that never occurred in the test:", *lines)), pytrace=False)


def sweep(item: pytest.Item) -> None:
    """Runs the test, which has passed, again: with its first allocation failing, then with its second, and so on.

    Fails it if one of these runs leaves something behind. How they end does not matter: with the error, or without it.
    """
    limit = requested.sweeps(item)
    if limit == 0 or not isinstance(item, pytest.Function) or hasattr(item, "_testcase"):
        return
    if outstanding.own_module() is None:
        return
    device.remember_where_memory_is_allocated()
    count = _allocations(item)
    found = []
    for number in range(1, min(count, limit) + 1):
        if left := _left_by(item, number):
            found += [f"  allocation {number} of {count}:", *(f"    {line}" for line in left)]
    if found:
        title = "openreg: if an allocation fails, the test leaves something behind:"
        pytest.fail("\n".join((title, *found)), pytrace=False)


def _inject(specification: str) -> Any:
    return outstanding.own_module().faults.inject(specification)


def _allocations(item: pytest.Function) -> int:
    """How many allocations the test makes. It has run before, so one-time allocations are not counted."""
    with _inject(f"oom@allocation:{COUNTS_ALL}") as fault:
        item.runtest()
    counted: int = fault.counted
    return counted


def _left_by(item: pytest.Function, number: int) -> list[str]:
    gc.collect()
    before = device.current_state(with_blocks=True)
    with _inject(f"oom@allocation:{number}"):
        _run(item)
    gc.collect()
    errors = outstanding.uncollected_errors(requested.timeout(item.config))
    left = [*device.leaks(before), *errors]
    before.restore()
    return left


def _run(item: pytest.Function) -> None:
    """Keeps nothing of an exception, whose traceback would hold tensors."""
    try:
        item.runtest()
    except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
        raise
    except BaseException as error:
        _clear(error, set())


def _clear(error: BaseException | None, seen: set[int]) -> None:
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        _clear(error.__cause__, seen)
        cleared, error = error, error.__context__
        cleared.__traceback__ = None


def check(item: pytest.Item, specification: Any) -> str | None:
    """What is wrong with a specification; None if nothing is, or if the device is missing."""
    if not isinstance(specification, str):
        return f"got {specification!r}, expected a string such as 'oom@allocation:3'"
    if device.absence():
        return None
    try:
        _inject(specification)
    except RuntimeError as error:
        return str(error)
    return None
