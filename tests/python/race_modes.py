"""The race detector for a part of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def race_detection(mode: str) -> Iterator[None]:
    """Waits for all devices and sets the mode, also when the body ends: then to what it was before."""
    before = torch.openreg.get_race_detection_mode()
    torch.openreg.set_race_detection_mode(mode)
    try:
        yield
    finally:
        torch.openreg.set_race_detection_mode(before)
