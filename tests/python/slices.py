"""What tests of PyTorch's databases share: which entries are run each time, and against what they count."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from devices import DEVICE

# Entries of the database whose results are memory that is not initialised, which equals nothing.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def one_in(share: int, name: str, *values: Any) -> Any:
    """A test's parameters. One of `share`, by a hash of the names, is run each time; all of them with ``-m ""``."""
    marks = () if zlib.crc32(name.encode()) % share == 0 else (pytest.mark.full,)
    return pytest.param(*values, id=name, marks=marks)


def passes_where_the_cpu_does(check: Callable[[Any, str], int], op: Any, if_nothing: str) -> None:
    """Whether `check(op, device)` passes on the device. It returns how much it has checked: if nothing, then this is
    the reason for which the test is skipped."""
    try:
        checked = check(op, DEVICE)
    except Exception as error:
        try:
            check(op, "cpu")
        except Exception:
            pytest.skip("fails on the CPU as well")
        raise error
    if not checked:
        pytest.skip(if_nothing)
