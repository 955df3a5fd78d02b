"""A check that passes, and leaves a process that cannot end."""

from __future__ import annotations

import atexit
import os

from backend_conformance import Device, Level, check


@check(level=Level.TRAINS, hook="nothing")
def passes_first(device: Device) -> None:
    """Passes."""


@check(level=Level.TRAINS, hook="the end of the process")
def dies_at_exit(device: Device) -> None:
    """Passes, but the process dies at its end."""
    atexit.register(os.abort)


@check(level=Level.TRAINS, hook="the end of the process", alone=True)
def dies_alone(device: Device) -> None:
    """The same, in a process of its own."""
    atexit.register(os._exit, 5)
