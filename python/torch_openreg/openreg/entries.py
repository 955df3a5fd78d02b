"""What context managers restore. It belongs to one entry by one thread, not to the object: threads may share an object,
and a thread may enter it again while it is inside."""

from __future__ import annotations

import threading
from typing import Any


class _Entries(threading.local):
    """The entries of this thread, the innermost last: the object that was entered, and what it restores."""

    def __init__(self) -> None:
        self.open: list[tuple[object, Any]] = []


_entries = _Entries()


def begin_entry(entered: object, before: Any) -> None:
    """Called by ``__enter__``: keeps what ``__exit__`` needs."""
    _entries.open.append((entered, before))


def end_entry(entered: object) -> Any:
    """Called by ``__exit__``: what the newest `begin_entry` of the same object in this thread has kept.

    Raises:
        RuntimeError: this thread is not inside.
    """
    entries = _entries.open
    for at in range(len(entries) - 1, -1, -1):  # the last, unless generators interleave
        if entries[at][0] is entered:
            return entries.pop(at)[1]
    raise RuntimeError(f"openreg: this thread has not entered the context manager that it leaves (got {entered!r})")
