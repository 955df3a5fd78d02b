"""Ranges with the names of ``torch.cuda.nvtx``: PyTorch's profiler shows them like those of ``record_function``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from torch.profiler import record_function

from .arguments import check_type, unsigned

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Open(threading.local):
    """Open ranges of this thread from `range_push`, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[record_function] = []


_open = _Open()
_started: dict[int, record_function] = {}
_ids = count(1)


def _begin(message: str | bytes) -> record_function:
    if isinstance(message, bytes):
        message = message.decode(errors="replace")
    check_type("the name of a range", message, str, "a str")
    begun = record_function(message)
    begun.__enter__()
    return begun


def range_push(msg: str | bytes) -> int:
    """Begins a range inside the calling thread's open ranges; returns how many were open before."""
    _open.ranges.append(_begin(msg))
    return len(_open.ranges) - 1


def range_pop() -> int:
    """Ends the calling thread's innermost range; returns how many are left, or -1 if there was none."""
    if not _open.ranges:
        return -1
    _open.ranges.pop().__exit__(None, None, None)
    return len(_open.ranges)


def range_start(msg: str | bytes) -> int:
    """Begins a range that may overlap with others; returns its number for `range_end`."""
    number = next(_ids)
    _started[number] = _begin(msg)
    return number


def range_end(range_id: int) -> None:
    """Ends the range for which `range_start` returned this number; an unknown number does nothing."""
    number = unsigned("the number of a range", range_id, "a result of range_start()")
    if begun := _started.pop(number, None):
        begun.__exit__(None, None, None)


def mark(msg: str | bytes) -> None:
    """Records a range of zero length."""
    _begin(msg).__exit__(None, None, None)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager and decorator: a range around its body. Further arguments are passed to ``msg.format``."""
    check_type("the name of a range", msg, str, "a str")
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
