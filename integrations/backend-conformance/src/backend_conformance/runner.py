"""Runs checks in worker processes, and survives what happens there. Does not import torch."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def run(self, checks: Iterable[Description]) -> None:
        """Runs a process for each group, and one for each check that is to be alone."""
        jobs = _jobs(checks)
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            tasks = [pool.submit(self._run_job, job) for job in jobs]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Ends the workers. Checks that have no result get none. Any thread may call it."""
        self.stopped = True

    def _run_job(self, checks: list[Description]) -> None:
        left = deque(checks)
        while left and not self.stopped:
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

    def give(self, result: Result) -> None:
        with self._lock:
            self.report(result)


class _Watch:
    """Follows a worker through its checks. A result is kept until the next check begins: if the process ends before
    that, its end belongs to the result."""

    def __init__(self, runner: Runner, worker: Process, left: deque[Description]) -> None:
        self.runner, self.worker, self.left = runner, worker, left
        self.started = False
        self.failure = ""  # of the setup
        self.running: Description | None = None
        self.kept: Result | None = None
        self.done = False
        self.printed = 0  # what the worker had printed when the check began
        self.since = time.monotonic()

    def until_it_ends(self) -> None:
        hung = ended = False
        while not ended:
            ended = self.worker.wait()
            for line in self.worker.lines():
                self._take(line)
            if not ended and (self.runner.stopped or time.monotonic() - self.since > self._limit()):
                hung = True
                self.worker.kill()
        if not self.runner.stopped:
            self._conclude(hung)

    def _limit(self) -> float:
        if self.running is not None:
            seconds = self.running.timeout
        else:
            seconds = _SECONDS_TO_EXIT if self.started else _SECONDS_TO_START
        return seconds * self.runner.patience

    def _take(self, line: dict[str, Any]) -> None:
        if "torch" in line:
            self.started = True
            self.runner.torch = str(line["torch"])
        elif "failed" in line:
            self.failure = str(line["failed"])
        elif "begins" in line and self.left and line["begins"] == self.left[0].id:
            self._give_kept()
            self.running, self.printed = self.left.popleft(), int(line["printed"])
        elif "ends" in line and self.running is not None and line["ends"] == self.running.id:
            self._end(Verdict(line["verdict"]), str(line["message"]), float(line["seconds"]))
        elif "done" in line:
            self.done = True
        else:
            return
        self.since = time.monotonic()

    def _end(self, verdict: Verdict, message: str, seconds: float) -> None:
        assert self.running is not None
        output = self.worker.output(self.printed) if verdict.fails else ""
        self.kept = Result.of(self.running, verdict, message, seconds, output)
        self.running = None

    def _give_kept(self) -> None:
        if self.kept is not None:
            self.runner.give(self.kept)
            self.kept = None

    def _conclude(self, hung: bool) -> None:
        """What the end of the process means for the check that ran, for the last one, or for all."""
        how = self.worker.ending()
        verdict = Verdict.HANG if hung else Verdict.CRASH
        if self.running is not None:
            message = f"still busy after {self._limit():g} seconds" if hung else f"{how} during the check"
            self._end(verdict, message, time.monotonic() - self.since)
        elif self.kept is not None and (hung or self.worker.status != 0 or not self.done):
            how = "the process did not end after it" if hung else f"{how} after it"
            message = f"{self.kept.message}; {how}" if self.kept.message else f"passed, but {how}"
            verdict = self.kept.verdict if self.kept.verdict.fails else verdict
            output = self.worker.output(self.printed)
            self.kept = dataclasses.replace(self.kept, verdict=verdict, message=message, output=output)
        elif self.kept is None:
            self._refuse("the process did not start in time" if hung else how)
        self._give_kept()

    def _refuse(self, how: str) -> None:
        """No check has begun."""
        message = self.failure.strip() or f"{how} before its first check; {self.worker.output()}"
        if not self.runner.torch:
            raise CannotStart(message)
        while self.left:
            check = self.left.popleft()
            self.runner.give(Result.of(check, Verdict.ERROR, f"the backend does not load again: {message}"))


def _jobs(checks: Iterable[Description]) -> list[list[Description]]:
    jobs: dict[str, list[Description]] = {}
    for each in checks:
        jobs.setdefault(each.id if each.alone else each.group, []).append(each)
    return list(jobs.values())
