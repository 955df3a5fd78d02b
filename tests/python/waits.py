"""Who may not make the host wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_waits() -> Iterator[None]:
    """Within it, an operator that makes the host wait for the device raises an error."""
    torch.openreg.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.openreg.set_sync_debug_mode("default")
