"""Calls that have to raise."""

from __future__ import annotations

from collections.abc import Callable

from backend_conformance import wrong


def refused(action: Callable[[], object], what: str, *kinds: type[Exception]) -> Exception:
    """Returns the error of a call that has to raise one of these kinds (RuntimeError if none); wrong if it returns."""
    expected = kinds or (RuntimeError,)
    try:
        action()
    except expected as error:
        return error
    wrong(f"no error: {what}")
