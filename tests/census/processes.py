"""Runs the cases of each entry in a forked process, and survives what happens there."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from result import Result

TIMEOUT_SECONDS = 300  # for one case

Entry = tuple[Any, list[Result]]  # of op_db, with its cases
RunCase = Callable[[Any, Result], Result]


@dataclass
class Child:
    """A process that works through the cases of an entry and writes a line for each."""

    op: Any
    cases: list[Result]
    pid: int
    pipe: int
    text: bytes = b""
    done: list[Result] = field(default_factory=list)
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_SECONDS)

    def read(self) -> bool:
        """Takes what it wrote; whether there may be more."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            self.done.append(Result(**json.loads(line)))
            self.deadline = time.monotonic() + TIMEOUT_SECONDS
        return bool(data)

    def finish(self) -> list[Result]:
        """Reaps it; the cases that are left to do if it died."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        left = self.cases[len(self.done) :]
        if not left:
            return []
        killed = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        left[0].status, left[0].details = "crashed", [killed]
        self.done.append(left[0])
        return left[1:]


def start(entry: Entry, run_case: RunCase) -> Child:
    op, cases = entry
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(write, "w") as pipe:
            for case in cases:
                pipe.write(json.dumps(asdict(run_case(op, case))) + "\n")
                pipe.flush()
        os._exit(0)
    os.close(write)
    return Child(op, cases, pid, read)


def run(entries: list[Entry], run_case: RunCase, jobs: int) -> list[Result]:
    """The results of all entries, `jobs` of them at a time.

    This process never touches the device, so its children may.
    """
    results: list[Result] = []
    running: dict[int, Child] = {}
    waiting = list(reversed(entries))
    while waiting or running:
        while waiting and len(running) < jobs:
            child = start(waiting.pop(), run_case)
            running[child.pipe] = child
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for pipe, child in list(running.items()):
            if pipe in ready and child.read():
                continue
            if pipe not in ready:
                if time.monotonic() < child.deadline:
                    continue
                os.kill(child.pid, signal.SIGKILL)
            del running[pipe]
            left = child.finish()
            results += child.done
            if left:
                waiting.append((child.op, left))
    return results
