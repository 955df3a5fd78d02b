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
_LARGEST_JOB = 100  # checks in a process; several processes share a larger group
_LONGEST_GAP = 1.0  # between two looks: if this process did not run for longer, no other did, and that does not count


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
        """Runs a process for each group (several for a large one), and one for each check that is to be alone."""
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
        refusals = 0
        while left and not self.stopped:
            message = self._run_process(left)
            if not message:
                continue
            refusals += 1  # a busy machine may be too slow once
            if refusals == 2:
                for check in left:
                    self.give(Result.of(check, Verdict.ERROR, f"the backend cannot be loaded again: {message}"))
                return

    def _run_process(self, left: deque[Description]) -> str:
        """Runs checks in one process until it ends, and takes those that have a result from `left`.

        Returns why the process ran none, or "".
        """
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
            return _Watch(self, worker, left).until_it_ends()
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
        self.waited = 0.0

    def until_it_ends(self) -> str:
        """Returns why no check has begun, or "". Raises CannotStart if none ever has."""
        hung = ended = False
        before = time.monotonic()
        while not ended:
            ended = self.worker.wait()
            now = time.monotonic()
            self.waited += min(now - before, _LONGEST_GAP)
            before = now
            for line in self.worker.lines():
                self._take(line)
            if not ended and (self.runner.stopped or self.waited > self._limit()):
                hung = True
                self.worker.kill()
        if self.runner.stopped:
            return ""
        if self.running is None and self.kept is None:
            return self._refusal("the process did not start in time" if hung else self.worker.ending())
        self._conclude(hung)
        return ""

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
        self.waited = 0.0

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
        """What the end of the process means for the check that ran, or for the last one."""
        how = self.worker.ending()
        verdict = Verdict.HANG if hung else Verdict.CRASH
        if self.running is not None:
            message = f"timed out after {self._limit():g} seconds" if hung else f"{how} during the check"
            self._end(verdict, message, self.waited)
        elif self.kept is not None and (hung or self.worker.status != 0 or not self.done):
            how = "the process did not end after it" if hung else f"{how} after it"
            message = f"{self.kept.message}; {how}" if self.kept.message else f"passed, but {how}"
            verdict = self.kept.verdict if self.kept.verdict.fails else verdict
            output = self.worker.output(self.printed)
            self.kept = dataclasses.replace(self.kept, verdict=verdict, message=message, output=output)
        self._give_kept()

    def _refusal(self, how: str) -> str:
        message = self.failure.strip() or f"{how} before its first check; {self.worker.output()}"
        if not self.runner.torch:
            raise CannotStart(message)
        return message


def _jobs(checks: Iterable[Description]) -> list[list[Description]]:
    jobs: dict[str, list[Description]] = {}
    for each in checks:
        jobs.setdefault(each.id if each.alone else each.group, []).append(each)
    size = _LARGEST_JOB
    return [job[start : start + size] for job in jobs.values() for start in range(0, len(job), size)]
