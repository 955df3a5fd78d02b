"""Runs what may crash, or not come to an end, in forked processes."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Iterable

from result import failure


def run_surviving(work: Callable[[int], str], numbers: Iterable[int], seconds: float) -> dict[int, str]:
    """What `work` says of each number, in a forked process. Where that dies, or says nothing for so many seconds, the
    answer is "crashed: why", and another process goes on. The calling process must not have used the device."""
    left, answers = list(numbers), dict[int, str]()
    while left:
        why = run_until_crash(work, left, seconds, answers)
        left = [number for number in left if number not in answers]
        if left:
            answers[left[0]] = f"crashed: {why}"
            left = left[1:]
    return answers


def run_until_crash(work: Callable[[int], str], numbers: list[int], seconds: float, answers: dict[int, str]) -> str:
    """Fills `answers`. Returns how the process ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            for number in numbers:
                try:
                    answer = work(number)
                except Exception as error:
                    answer = f"crashed: {failure(error)}"
                pipe.write(json.dumps([number, answer]) + "\n")
                pipe.flush()
        os._exit(0)
    os.close(write)
    text, late = b"", False
    while True:
        ready, _, _ = select.select([read], [], [], seconds)
        data = os.read(read, 1 << 16) if ready else b""
        if not data:
            late = not ready
            break
        *lines, text = (text + data).split(b"\n")
        answers.update(json.loads(line) for line in lines)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(read)
    if late:
        return f"no answer in {seconds} s"
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
