"""Who may not make the host wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.testing import assert_close


@contextmanager
def no_waits() -> Iterator[None]:
    """Within it, an operator that makes the host wait for the device raises an error."""
    torch.openreg.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.openreg.set_sync_debug_mode("default")


@contextmanager
def waits_allowed() -> Iterator[None]:
    """A part of no_waits() in which the host may wait: to look at results."""
    mode = torch.openreg.get_sync_debug_mode()
    torch.openreg.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.openreg.set_sync_debug_mode(mode)


def assert_close_to(got: torch.Tensor, expected: torch.Tensor, tolerance: float | None = None) -> None:
    """Compares a tensor of the device with one of the CPU, also within no_waits(). With a tolerance, relative and
    absolute, the dtypes may differ."""
    with waits_allowed():
        got = got.cpu()
    if tolerance is None:
        assert_close(got, expected)
    else:
        assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance)
