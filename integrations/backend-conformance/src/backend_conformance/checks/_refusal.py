"""Calls that have to raise."""

from __future__ import annotations

from collections.abc import Callable

from backend_conformance import wrong


def refused(action: Callable[[], object], what: str, *kinds: type[Exception]) -> Exception:
    """Returns the error of a call that has to raise one; wrong if it returns. Any other error passes through; the default is RuntimeError."""
    expected = kinds or (RuntimeError,)
    try:
        action()
    except expected as error:
        return error
    wrong(f"no error: {what}")
