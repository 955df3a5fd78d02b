"""Which part of a program ``torch.profiler`` records on the device, with the names of ``torch.cuda.profiler``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import _C

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Makes a running ``torch.profiler`` record the device again, after `stop`. Otherwise does nothing."""
    _C.resume_tracing()


def stop() -> None:
    """Makes a running ``torch.profiler`` stop recording the device, until `start`.

    Work that was launched before and runs afterwards is not recorded: synchronize first.
    """
    _C.pause_tracing()


@contextmanager
def profile() -> Iterator[None]:
    """Context manager: calls `start` before its body and `stop` after it."""
    start()
    try:
        yield
    finally:
        stop()
