"""Runs a program once, and reads what its processes report. Needs no torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import report as reports_of
from .profiles import PROFILES
from .report import Ended, Report
from .request import VARIABLE, Request, report_files

GRACE = 10.0
"""Seconds that other processes of a program have when one has run out of memory: they may wait for it forever."""


class FitsError(Exception):
    """Wrong use, or a program that cannot be measured: one sentence for the user."""


@dataclass(frozen=True)
class Program:
    """What is run: the arguments as the user wrote them, and what the environment has in addition."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def command(self) -> list[str]:
        """A Python file, ``-m`` and a module, or another command such as torchrun, whose processes are measured.

        Raises:
            FitsError: there is no such program.
        """
        first = self.arguments[0]
        if first.endswith(".py"):
            if not Path(first).is_file():
                raise FitsError(f"the program does not exist (got {first!r}, expected a Python file, -m or a command)")
            return [sys.executable, *self.arguments]
        if first == "-m" and len(self.arguments) > 1:
            return [sys.executable, *self.arguments]
        if shutil.which(first) is None:
            raise FitsError(f"the program does not exist (got {first!r}, expected a Python file, -m or a command)")
        return list(self.arguments)

    def with_value(self, name: str, value: int) -> Program:
        """The program with the value of a search: for ``{name}`` in its arguments, and as an environment variable."""
        arguments = tuple(argument.replace(f"{{{name}}}", str(value)) for argument in self.arguments)
        return Program(arguments, {**self.environment, name: str(value)})

    def with_arguments(self, arguments: Sequence[str]) -> Program:
        return Program((*self.arguments, *arguments), self.environment)


@dataclass(frozen=True)
class Run:
    """A run of a program: its exit status, its processes' reports, and the bytes that each device could reserve."""

    status: int
    reports: list[Report]
    usable: int


Environment = Callable[[str, int | None], dict[str, str]]
"""The settings of a device that has a profile's memory, and that many devices (None: the default)."""


def device_settings(profile: str, devices: int | None) -> dict[str, str]:
    """`Environment` of torch_openreg."""
    total = PROFILES[profile].total
    assert total is not None
    settings = {"TORCH_OPENREG_MEMORY": f"{total}MiB"}
    return settings if devices is None else {**settings, "TORCH_OPENREG_DEVICES": str(devices)}


def run(program: Program, profile: str, steps: int, quiet: bool = False, nccl: int = 0) -> Run:
    """Runs the program with the memory of a GPU, less `nccl` bytes. The environment already has its settings.

    The program has processes of its own, because settings are read once in a process, and a program that ends by a
    signal, or forks before it uses the device, shall still be reported.

    Raises:
        FitsError: the program does not exist, or used no device although it ended without an error.
    """
    usable = PROFILES[profile].usable - nccl
    command = program.command()
    with tempfile.TemporaryDirectory(prefix="openreg-fits-") as name:
        folder = Path(name)
        Request(steps, usable, quiet, profile).write(folder)
        status = _wait(command, {**os.environ, **program.environment, VARIABLE: name}, folder)
        reports = [reports_of.read(file) for file in report_files(folder)]
    reports.sort(key=lambda report: report.rank)
    _settle(reports, status)
    if not reports and status == 0:
        raise FitsError(
            "the program allocated no memory on the device, so there is nothing to report: it ended before it did, or "
            "uses another device"
        )
    return Run(status, reports, usable)


def _settle(reports: Sequence[Report], status: int) -> None:
    """A process does not know whether the program survives that memory ran out; its exit status says so."""
    if status != 0:
        return
    for report in reports:
        if report.ended == Ended.OUT_OF_MEMORY:
            report.ended = Ended.PROGRAM


def _wait(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    """Runs the command in a session of its own, so that all its processes can be ended. Its output goes to stderr."""
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
    deadline: float | None = None
    seen: set[Path] = set()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=0.2)
            for file in set(report_files(folder)) - seen:
                seen.add(file)
                if reports_of.read(file).ended == Ended.OUT_OF_MEMORY:
                    deadline = time.monotonic() + GRACE
            if deadline is not None and time.monotonic() > deadline:
                _end(process, signal.SIGTERM)
                deadline = time.monotonic() + GRACE
    except KeyboardInterrupt:  # the terminal interrupts this process only
        _end(process, signal.SIGINT)
        try:
            return process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            return 130
    finally:
        if process.poll() is None:
            _end(process, signal.SIGKILL)
            process.wait()


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
