"""Which part of a program ``torch.profiler`` sees of the device, with the names of ``torch.cuda.profiler``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_openreg import _C

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """A running ``torch.profiler`` records the device again, after :func:`stop`. Without one nothing happens."""
    _C.resume_tracing()


def stop() -> None:
    """A running ``torch.profiler`` records nothing more of the device, until :func:`start`.

    What is launched before and runs afterwards is not recorded: synchronize first.
    """
    _C.pause_tracing()


@contextmanager
def profile() -> Iterator[None]:
    """Context manager: :func:`start` before its body, :func:`stop` after it."""
    start()
    try:
        yield
    finally:
        stop()
