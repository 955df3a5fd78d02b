"""Whether a part of the program fits on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..fits.context import FitsReport


@contextmanager
def fits(profile: str) -> Iterator[FitsReport]:
    """Context manager: whether the work inside fits on a GPU, and who holds the memory at its peak (docs/fits.md).

    Inside, each device can reserve what PyTorch can reserve on that GPU, if it has as much itself. Without computing,
    operators take that GPU's workspaces. What was allocated before counts, too. `_record_memory_history` has no effect
    inside, and what it has recorded before is discarded.

    Example::

        with torch.openreg.fits("h100") as report:
            train()
        print(report)
        assert report.fits

    Args:
        profile: the name of a GPU, such as ``"h100"`` or ``"a100-40"``; docs/fits.md lists them.

    Raises:
        ValueError: there is no such profile.
        RuntimeError: another recording is active.
    """
    from ..fits.context import record

    with record(profile) as report:
        yield report
