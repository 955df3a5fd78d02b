"""How work reached the device and who did it: makes tests deterministic and explains speed."""

from __future__ import annotations

from .. import _C


def launch_stats() -> dict[str, int]:
    """How operators reached the device, since the process began or the last `reset_launch_stats`.

    ``structured`` and ``boxed`` launches are asynchronous; ``synchronous`` ones waited for the stream and ran on the
    calling thread. ``host_waits`` counts how often an operator made the host wait: the synchronous ones, ``item`` and
    copies to the host.
    """
    return _C.launch_stats()


def reset_launch_stats() -> None:
    """Starts the counts of `launch_stats` again."""
    _C.reset_launch_stats()


def scheduler_stats() -> dict[str, int]:
    """What the scheduler has done in this process, all devices together.

    ``commands_by_engines`` and ``commands_by_hosts`` say who ran the commands (a thread that waits, works); ``grants``
    and ``helps`` count the streams a waiting thread was handed or took; ``parks`` the streams that had to wait for an
    event; ``sleeps`` the threads that slept; ``engines`` and ``spares`` the threads started.
    """
    return _C.scheduler_counters()
