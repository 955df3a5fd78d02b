"""When commands run: adversarial schedules reveal missing synchronization."""

from __future__ import annotations

from .. import _C

__all__ = ["get_schedule", "set_schedule"]


def set_schedule(schedule: str) -> None:
    """Waits for all devices, and then sets when commands run: some schedules reveal missing synchronization.

    A correct program computes the same bits in each schedule. One that lacks a `wait_stream`, a `synchronize` or a
    `record_stream` computes something else, in every run with the same schedule. ``TORCH_OPENREG_SCHEDULE`` sets the
    schedule with which the process begins.

    Args:
        schedule: ``"earliest"`` (also ``"default"``): commands run as early as possible. ``"latest"``: as late as
            possible, only when a thread of the program waits for them or asks whether they have completed, or when a
            queue is full; of the other streams, only what these commands need runs first. ``"random:SEED"``: whenever
            the program submits or waits, a random generator with this seed (0 to 2**64 - 1) decides which streams run,
            and how far. The same program runs its commands in the same order for the same seed, if one of its threads
            uses the devices. In both, commands that no thread waits for also run once the process has been asleep for
            0.2 seconds.

    Raises:
        RuntimeError: `schedule` is none of these.
    """
    if not isinstance(schedule, str) or not _C.set_schedule(schedule):
        raise RuntimeError(
            f"openreg: invalid schedule (got {schedule!r}, expected `earliest`, `latest`, or `random:SEED` with a "
            "number below 2**64)"
        )


def get_schedule() -> str:
    """The current schedule, as `set_schedule` accepts it."""
    return _C.get_schedule()
