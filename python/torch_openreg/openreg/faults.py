"""Fault injection, to write and test the handling of errors."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType

from .. import _C
from .arguments import DeviceLike, device_index

__all__ = ["Fault", "executor_pid", "inject", "reset_device", "summary"]


class Fault(contextlib.ContextDecorator):
    """A fault that occurs in the body of a ``with`` statement, or in a function that it decorates. See `inject`."""

    def __init__(self, head: str, options: list[str]) -> None:
        self._head = head
        self._options = options
        self._armed: _C.ArmedFault | None = None
        self._arming = threading.Lock()
        self.spec = _C.parse_fault(head, options)
        """The fault as `TORCH_OPENREG_FAULTS` has it, and as errors name it."""

    def __enter__(self) -> Fault:
        with self._arming:
            if self.is_active:
                raise RuntimeError(f"openreg: the fault is active already (got {self.spec!r} a second time)")
            self._armed = _C.arm_fault(self._head, self._options)
            self.is_active = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    is_active = False
    """Whether the fault is counting, and can occur."""

    def release(self) -> None:
        """Ends the fault: nothing more fails, and hung commands continue. The end of the body does the same."""
        if self._armed is not None:
            _C.disarm_fault(self._armed)
        self.is_active = False

    @property
    def counted(self) -> int:
        """How many allocations, launches, copies and so on the fault has counted."""
        return self._armed.counted if self._armed else 0

    @property
    def fired(self) -> int:
        """How often the fault has occurred."""
        return self._armed.fired if self._armed else 0

    @property
    def where(self) -> list[str]:
        """Where the fault occurred the first 16 times: ``["launch 3 (aten::mm) on openreg:0"]``."""
        return self._armed.where if self._armed else []

    @property
    def seed(self) -> int:
        """The seed of the random choices: `probability`, and which bit is wrong. Drawn at random if none was given."""
        return self._armed.seed if self._armed else 0

    def __repr__(self) -> str:
        return f"<Fault {self.spec!r}: fired {self.fired} times, {self.counted} counted>"


def inject(
    kind: str,
    at: str | None = None,
    *,
    device: DeviceLike = None,
    match: str | None = None,
    times: int | None = None,
    probability: float | None = None,
    seed: int | None = None,
    delay: float | None = None,
    rank: int | None = None,
    restart: int | None = None,
) -> Fault:
    """A fault that occurs in the body of a ``with`` statement: ``with inject("oom", at="allocation:3"): ...``.

    Events of all threads count, from the beginning of the body. At its end hung commands continue.
    Errors of commands are raised by the call that waits for them: wait in the body. `TORCH_OPENREG_FAULTS` has
    the same effect for a whole process, without a change of the program. [Fault injection](faults.md) has a program for
    each kind.

    Args:
        kind: ``"oom"``, ``"error"``, ``"corrupt"``, ``"slow"``, ``"hang"``, ``"lost"``, ``"exit"`` or ``"crash"``;
            or a whole specification as in `TORCH_OPENREG_FAULTS`, such as ``"slow@copy:*=2ms,device=1"``.
        at: the event to count, and after a colon the occurrence that fails: ``"allocation:100"``, ``"aten::mm:3"``;
            ``"copy:*"``: each. One of ``"allocation"``, ``"launch"``, ``"copy"``, ``"collective"``, ``"pin"``,
            ``"ipc"``, ``"compile"``, or an operator's name.
        device: counts only events of this device.
        match: counts only commands and collectives whose name matches; ``*`` is any characters, ``?`` is one.
        times: how many fail at most. Default one; with ``*`` or a `probability` all.
        probability: each occurrence, from the given one on, fails with this probability.
        seed: makes the random choices reproducible. By default it is drawn at random and printed.
        delay: seconds, for ``"slow"``.
        rank: only on this rank: for a collective the global one, or else the process's ``RANK``, which torchrun sets.
        restart: only in this run of the process, which torchrun starts again after a failure; 0 is the first.

    Returns:
        The fault, with its counters `Fault.fired`, `Fault.counted` and `Fault.where`.

    Raises:
        RuntimeError: the specification is malformed; the message says what is expected.
    """
    head, *options = (part.strip() for part in kind.split(",")) if at is None else (f"{kind}@{at}",)
    if delay is not None:
        head += f"={delay}s"
    if device is not None:
        options.append(f"device={device_index(device)}")
    given = {"match": match, "times": times, "probability": probability, "seed": seed, "rank": rank, "restart": restart}
    options += [f"{name}={value}" for name, value in given.items() if value is not None]
    return Fault(head, options)


def summary() -> str:
    """A line for each fault so far, also those of `TORCH_OPENREG_FAULTS`: what it did, or that it never fired.

    The process prints the same when it ends.
    """
    return _C.fault_summary()


def reset_device(device: DeviceLike = None, *, keep_memory: bool = False) -> None:
    """Makes a lost device usable, or one that has failed with `TORCH_OPENREG_STICKY_ERRORS=1`.

    Queued work is skipped, and errors that no call has raised are dropped. On a working device, queued work runs first.
    On CUDA only a new process can use the device again.

    Args:
        device: None is the current device.
        keep_memory: whether tensors keep their values. By default each byte of the device's memory is 255 afterwards,
            so that floats are NaN. The tensors stay usable.
    """
    _C.reset_device(device_index(device), keep_memory)


def executor_pid(device: DeviceLike = None) -> int | None:
    """The process that runs a device's kernels with `TORCH_OPENREG_EXECUTOR=process`, for debuggers and tests.

    It is started by the first kernel, and by `reset_device`. If it crashes or is killed, the device is lost, but the
    program continues.

    Args:
        device: None is the current device.

    Returns:
        The process id. None if kernels run in the program, or if there is no process now.
    """
    return _C.executor_pid(device_index(device))
