"""Runs programs in processes that are forked from one which has imported torch, which takes longer than most of them.

Not for what is read while torch is loaded: paths, and the settings of autoloading, of OpenMP and of PyTorch's logs.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_SERVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import forked
del sys.path[0]
forked.serve()
"""


class Server:
    """The process that forks. It starts with the first program."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, code: str, folder: Path, environment: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run() of Python with `code`, which prints to files in the folder."""
        if self._process is None:
            command = [sys.executable, "-c", _SERVER]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        files = [folder / name for name in (".stdout", ".stderr")]
        self._write({"code": code, "folder": str(folder), "environment": environment, "files": [*map(str, files)]})
        child = self._read()
        ended = select.select([self._process.stdout], [], [], timeout)[0]
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(self._read())
        printed = [file.read_text() for file in files]
        if not ended:
            raise subprocess.TimeoutExpired(code, timeout, *printed)
        return subprocess.CompletedProcess(code, status, *printed)

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()

    def _write(self, request: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)

    def _read(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return int(self._process.stdout.readline())


def serve() -> None:
    """Forks for each request. The child runs the program, and ends as Python does."""
    import torch  # noqa: F401  and nothing else: modules that come later may read settings

    gc.freeze()

    while line := sys.stdin.readline():
        if (child := os.fork()) == 0:
            _run(json.loads(line))
            return
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


def _run(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for descriptor, name in enumerate([os.devnull, *request["files"]]):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)
