"""Who may not make the host wait, and what a call launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from devices import DEVICE
from torch.testing import assert_close

MODULE = torch.get_device_module(DEVICE)


@contextmanager
def no_waits() -> Iterator[None]:
    """Within it, an operator that makes the host wait for the device raises an error."""
    MODULE.set_sync_debug_mode("error")
    try:
        yield
    finally:
        MODULE.set_sync_debug_mode("default")


@contextmanager
def waits_allowed() -> Iterator[None]:
    """A part of no_waits() in which the host may wait: to look at results."""
    mode = MODULE.get_sync_debug_mode()
    MODULE.set_sync_debug_mode("default")
    try:
        yield
    finally:
        MODULE.set_sync_debug_mode(mode)


def launches(work: Callable[[], object]) -> dict[str, int]:
    """The counts of a call that is not the first."""
    work()
    MODULE.reset_launch_stats()
    work()
    return MODULE.launch_stats()


def assert_close_to(got: torch.Tensor, expected: torch.Tensor, tolerance: float | None = None) -> None:
    """Compares a tensor of the device with one of the CPU, also within no_waits(). With a tolerance, relative and
    absolute, the dtypes may differ."""
    with waits_allowed():
        got = got.cpu()
    if tolerance is None:
        assert_close(got, expected)
    else:
        assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance)
