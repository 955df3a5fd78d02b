"""The peak memory of a part of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .. import _C
from .arguments import DeviceLike, device_index
from .device import _lazy_init


class Peak:
    """The result of `peak`, in bytes: inside the scope the peak so far, afterwards that of the whole scope."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._at_begin = torch.accelerator.memory_allocated(device)
        self._scope: int | None = _C.begin_peak(device)
        self._figures = (0, 0)

    def _now(self) -> tuple[int, int]:
        if self._scope is not None:
            self._figures = _C.peak_of(self._device, self._scope)
        return self._figures

    def _end(self) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            self._figures = _C.end_peak(self._device, scope)

    @property
    def allocated(self) -> int:
        """The maximum of `memory_allocated`."""
        return self._now()[0]

    @property
    def reserved(self) -> int:
        """The maximum of `memory_reserved`."""
        return self._now()[1]

    @property
    def growth(self) -> int:
        """By how much `allocated` exceeds what tensors held when the scope began."""
        return self.allocated - self._at_begin

    def __repr__(self) -> str:
        return f"Peak(allocated={self.allocated}, reserved={self.reserved}, growth={self.growth})"


@contextlib.contextmanager
def peak(device: DeviceLike = None) -> Iterator[Peak]:
    """Context manager: measures the peak memory of `device` (default: the current one) inside, used by any thread.

    Scopes may be nested and may overlap: each has a peak of its own, which neither other scopes nor
    `reset_peak_memory_stats` change. Memory counts from the call that allocates it, whether or not its work has run.

    Example::

        with torch.openreg.memory.peak() as forward:
            loss = model(batch)
        print(forward.growth)
    """
    _lazy_init()
    measured = Peak(device_index(device))
    try:
        yield measured
    finally:
        measured._end()
