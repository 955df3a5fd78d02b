"""How work reached the device and which threads ran it, to write deterministic tests and to explain speed."""

from __future__ import annotations

from .. import _C

__all__ = ["get_sync_debug_mode", "launch_stats", "reset_launch_stats", "scheduler_stats", "set_sync_debug_mode"]


def launch_stats() -> dict[str, int]:
    """Counts how operators reached the device, since the process began or the last `reset_launch_stats`.

    ``typed`` and ``boxed`` launches, ``compiled`` kernels of torch.compile and ``copies`` of whole storages are
    asynchronous; ``synchronous`` operators waited for the stream and ran on the calling thread; ``cpu_fallbacks``
    counts the custom ones among them that have a kernel for the CPU only (``TORCH_OPENREG_CPU_FALLBACK=0`` makes each
    an error, as on CUDA). ``host_waits`` counts implicit synchronizations: synchronous operators, ``item`` and
    copies to the host. ``plan_hits`` counts the calls that found a plan made by an earlier call of the
    same signature, ``plans_made`` the calls that had to be planned. Planning may run kernels on the calling thread:
    ``probes`` counts them, ``probe_ns`` is their time in nanoseconds, ``probe_bytes`` the memory allocated for
    their arguments, in bytes.
    """
    return _C.launch_stats()


def reset_launch_stats() -> None:
    """Resets the counts of `launch_stats`."""
    _C.reset_launch_stats()


def scheduler_stats() -> dict[str, int]:
    """Counters of the scheduler in this process, for all devices together.

    ``commands_by_engines`` and ``commands_by_hosts`` count commands by the kind of thread that ran them (a waiting host
    thread runs commands); ``grants`` and ``helps`` how often a waiting host thread was handed a stream, or took one;
    ``parks`` how often a stream had to wait for an event; ``sleeps`` how often a host thread slept in a wait;
    ``engines`` the engine threads started, including ``spares``, those started in place of blocked ones; ``requests``
    the messages to processes of devices (``TORCH_OPENREG_EXECUTOR=process``), each with one or several commands.
    Without computing, commands that do nothing are not queued, and not counted.
    """
    return _C.scheduler_counters()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what happens on an implicit synchronization, as `torch.cuda.set_sync_debug_mode` does.

    The mode applies to the process, and to operators that wait for the device. Explicit waits, such as `synchronize`,
    are not operators.

    Args:
        debug_mode: ``"default"`` or 0: nothing happens. ``"warn"`` or 1: a warning, with the line of Python that called
            the operator. ``"error"`` or 2: a RuntimeError, before anything is done.

    Raises:
        RuntimeError: `debug_mode` is none of these.
    """
    modes: dict[int | str, int] = {"default": 0, "warn": 1, "error": 2, 0: 0, 1: 1, 2: 2}
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, int | str) or debug_mode not in modes:
        raise RuntimeError(
            f"openreg: invalid sync debug mode (got {debug_mode!r}, expected one of `default`, `warn`, `error`)"
        )
    _C.set_sync_debug_mode(modes[debug_mode])


def get_sync_debug_mode() -> int:
    """The mode set by `set_sync_debug_mode`: 0 (default), 1 (warn) or 2 (error)."""
    return _C.get_sync_debug_mode()
