"""Runs checks in worker processes, and survives what happens there. Does not import torch."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import groups
from .catalogue import Description
from .process import Process
from .result import Result
from .verdicts import Verdict

_SECONDS_TO_START = 300.0  # the first import of torch on a cold disk, and the setup
_SECONDS_TO_EXIT = 60.0


class CannotStart(Exception):
    """The backend cannot be loaded, so no check can run."""


@dataclass
class Runner:
    """Runs checks on a device; each result goes to `report` as soon as it is known, from one thread at a time."""

    device: str
    setup: str = ""
    folder: Path = groups.CHECKS_FOLDER
    workers: int = 1
    patience: float = 1.0  # a factor for all limits of time
    report: Callable[[Result], None] = lambda result: None
    torch: str = ""  # its version; known when a worker has started
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _stopped: bool = False

    def run(self, checks: Iterable[Description]) -> None:
        """Runs a process for each group, and one for each check that is to be alone."""
        jobs = _jobs(checks)
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            tasks = [pool.submit(self._run_job, job) for job in jobs]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                self._stopped = True
                raise

    def _run_job(self, checks: list[Description]) -> None:
        left = deque(checks)
        while left and not self._stopped:
            self._run_process(left)

    def _run_process(self, left: deque[Description]) -> None:
        """Runs checks in one process until it ends, and takes those that have a result from `left`."""
        threads = max(1, min(4, (os.cpu_count() or 1) // max(1, self.workers)))
        worker = Process(
            {
                "task": "run",
                "device": self.device,
                "setup": self.setup,
                "folder": str(self.folder),
                "ids": [each.id for each in left],
                "threads": threads,
            }
        )
        try:
            _Watch(self, worker, left).until_it_ends()
        finally:
            worker.close()

    def _give(self, result: Result) -> None:
        with self._lock:
            self.report(result)


class _Watch:
    """Follows a worker through its checks."""

    def __init__(self, runner: Runner, worker: Process, left: deque[Description]) -> None:
        self.runner, self.worker, self.left = runner, worker, left
        self.started = False
        self.done = False
        self.failure = ""  # of the setup
        self.running: Description | None = None
        self.last: Description | None = None
        self.printed = 0  # what the worker had printed when the check began
        self.since = time.monotonic()

    def until_it_ends(self) -> None:
        hung = False
        while True:
            ended = self.worker.wait()
            for line in self.worker.lines():
                self._take(line)
            if ended:
                break
            if self.runner._stopped or time.monotonic() - self.since > self._limit():
                hung = not self.runner._stopped
                self.worker.kill()
        if not self.runner._stopped:
            self._conclude(hung)

    def _limit(self) -> float:
        if self.running is not None:
            seconds = self.running.timeout
        else:
            seconds = _SECONDS_TO_EXIT if self.started else _SECONDS_TO_START
        return seconds * self.runner.patience

    def _take(self, line: dict[str, object]) -> None:
        now = time.monotonic()
        if "torch" in line:
            self.started = True
            self.runner.torch = str(line["torch"])
        elif "failed" in line:
            self.failure = str(line["failed"])
        elif "begins" in line and self.left and line["begins"] == self.left[0].id:
            self.running, self.printed = self.left[0], self.worker.output_size()
        elif "ends" in line and self.running is not None and line["ends"] == self.running.id:
            self._end(Verdict(line["verdict"]), str(line["message"]), float(str(line["seconds"])))
        elif "done" in line:
            self.done = True
        else:
            return
        self.since = now

    def _end(self, verdict: Verdict, message: str, seconds: float) -> None:
        check = self.left.popleft()
        output = self.worker.output(self.printed) if verdict.fails else ""
        self.running, self.last = None, check
        self.runner._give(Result.of(check, verdict, message, seconds, output))

    def _conclude(self, hung: bool) -> None:
        """What the end of the process means for the check that ran, for the last one, or for all."""
        how = self.worker.ending()
        if self.running is not None:
            seconds = time.monotonic() - self.since
            if hung:
                self._end(Verdict.HANG, f"still busy after {self._limit():g} seconds", seconds)
            else:
                self._end(Verdict.CRASH, f"{how} during the check", seconds)
        elif not self.started:
            self._refuse(how if not hung else "the process did not start in time")
        elif self.last is None or (self.left and self.done):
            self._refuse(f"{how} before its first check")
        elif hung or self.worker.status != 0 or not self.done:
            message = "the process did not end" if hung else f"{how} after its last check"
            self._exit(Verdict.HANG if hung else Verdict.CRASH, message)

    def _refuse(self, how: str) -> None:
        message = self.failure.strip() or f"{how}; {self.worker.output()}"
        if not self.runner.torch:
            raise CannotStart(message)
        while self.left:
            check = self.left.popleft()
            self.runner._give(Result.of(check, Verdict.ERROR, f"the backend does not load again: {message}"))

    def _exit(self, verdict: Verdict, message: str) -> None:
        """The process failed between checks or at its end, after checks that passed."""
        assert self.last is not None
        exit_of_group = Description(
            id=f"{self.last.group}.exit",
            group=self.last.group,
            level=self.last.level,
            hook="the end of a process that has used the device",
            page=f"{self.last.group}.md",
        )
        message = f"{message}, {self.last.id}"
        self.runner._give(Result.of(exit_of_group, verdict, message, 0.0, self.worker.output(self.printed)))


def _jobs(checks: Iterable[Description]) -> list[list[Description]]:
    jobs: dict[str, list[Description]] = {}
    for each in checks:
        jobs.setdefault(each.id if each.alone else each.group, []).append(each)
    return list(jobs.values())
