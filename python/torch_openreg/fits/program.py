"""A process of a program that the command runs: records it from its first use of the device to its end."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from .. import _C
from . import request
from .profiles import PROFILES
from .recorder import Recorder
from .report import Ended


class Enough(SystemExit):
    """Ends the program after its steps, as the end of the program would: code that catches Exception lets it pass, and
    functions at exit run."""


class Process:
    """This process, which `prepare` has prepared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._request = request.read(folder)
        gpu = PROFILES[self._request.profile].gpu if self._request.profile else None
        if gpu is not None:
            _C.set_gpu(*gpu.capability, gpu.multiprocessors, gpu.threads)
        self._process = os.getpid()
        self._recorder = Recorder(self._request.usable, self._step_done)
        self._error: BaseException | None = None
        self._hook = sys.excepthook
        sys.excepthook = self._uncaught
        atexit.register(self.end)
        # A forked child of multiprocessing ends without the functions at exit.
        multiprocessing.util.Finalize(None, self.end, exitpriority=100)

    def _step_done(self, steps: int, seconds: float) -> None:
        if not self._request.quiet and request.rank() == 0:
            peak = max(
                torch.accelerator.max_memory_allocated(device) for device in range(torch.accelerator.device_count())
            )
            print(
                f"openreg: step {steps} of {self._request.steps} after {seconds:.1f} s, peak {peak / 2**30:.2f} GiB",
                file=sys.stderr,
                flush=True,
            )
        if steps >= self._request.steps:
            self._write(Ended.STEPS)
            register_optimizer_step_pre_hook(_end_again)
            raise Enough(0)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._error = error
        self._hook(kind, error, trace)

    def end(self) -> None:
        """Writes the report if no step has."""
        if os.getpid() != self._process or threading.current_thread() is not threading.main_thread():
            return
        if isinstance(self._error, KeyboardInterrupt):
            ended = Ended.INTERRUPTED
        elif self._recorder.ran_out_of_memory:
            # The command knows better if the program has survived that.
            ended = Ended.OUT_OF_MEMORY
        else:
            ended = Ended.ERROR if self._error else Ended.PROGRAM
        self._write(ended)
        _leave_process_groups()

    def _write(self, ended: str) -> None:
        report = self._recorder.finish(ended)
        report.rank = request.rank()
        if report.devices:
            report.write(request.report_file(self._folder))


def _end_again(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """For a program that has caught the exception and goes on."""
    raise Enough(0)


def _leave_process_groups() -> None:
    """So that other ranks, which may still communicate, learn that this one has ended."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    try:
        distributed.destroy_process_group()
    except Exception as error:
        print(f"openreg: the process group could not be destroyed: {error}", file=sys.stderr)


def prepare(folder: Path) -> None:
    """Records the process from its first use of the device on. Called when the device is loaded."""
    from ..openreg.device import _lazy_call

    processes: list[Process] = []
    _lazy_call(lambda: processes.append(Process(folder)))
