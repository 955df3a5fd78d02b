"""A world of many ranks of which only this process exists."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["fake_world"]


@contextlib.contextmanager
def fake_world(size: int, rank: int = 0) -> Iterator[None]:
    """While it is active, torch.distributed makes groups of `size` ranks of which only this one exists.

    The program runs as it would as `rank` of a job of so many processes: ``init_process_group`` needs no launcher and
    no network, and its arguments `init_method`, `rank` and `world_size` may be left out. ``RANK``, ``WORLD_SIZE``,
    ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` are set as torchrun sets them, for
    machines with as many ranks as this process has devices. Collectives have the results that they would have if all
    ranks held the values of this one; what only another rank has is zeros. ``TORCH_OPENREG_FAKE_WORLD`` does the same
    for a whole process. At the end, groups are destroyed.

    Args:
        size: the number of ranks, 1 to 65536.
        rank: the rank that this process is.

    Raises:
        ValueError: `size` or `rank` is out of range.
        RuntimeError: a default group exists, or the process is in another `fake_world`.
    """
    from .._pytorch import fake_world as adapter

    with adapter.entered(adapter.World(size, rank)):
        yield
