"""Waiting for what no call waits for: other threads, processes, the system."""

from __future__ import annotations

import time
from collections.abc import Callable


def happens(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true within 30 seconds."""
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
