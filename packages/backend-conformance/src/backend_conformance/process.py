"""A worker process, as its parent sees it: the lines that it reports, its output, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.05


class Process:
    """A worker. It reports to a file, not to a pipe: children of a check could keep that open, or write to it."""

    def __init__(self, job: dict[str, Any], autoload: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        folder = Path(self._folder.name)
        self._report, self._output = folder / "report", folder / "output"
        self._report.touch()
        (folder / "job").write_text(json.dumps({**job, "report": str(self._report)}), encoding="utf-8")
        environment = os.environ if autoload else {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-X", "faulthandler", "-m", f"{__package__}.worker", str(folder / "job")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._read = 0
        self._partial = b""

    def lines(self) -> list[dict[str, Any]]:
        """What the worker has reported since the last call. Anything that is no report is ignored."""
        with self._report.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *complete, self._partial = (self._partial + data).split(b"\n")
        found = []
        for each in complete:
            with contextlib.suppress(ValueError):
                line = json.loads(each)
                if isinstance(line, dict):
                    found.append(line)
        return found

    def output_size(self) -> int:
        return self._output.stat().st_size

    def output(self, begin: int = 0, limit: int = 4000) -> str:
        """The end of what the worker and its children printed, from an offset on."""
        with self._output.open("rb") as file:
            file.seek(max(begin, self.output_size() - limit))
            return file.read(limit).decode(errors="replace").strip()

    def wait(self, seconds: float = _POLL_SECONDS) -> bool:
        """Whether the worker has ended; waits at most this long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the worker, and the processes that it started. The faulthandler prints where its threads were."""
        if not self.wait(0):
            self._process.send_signal(signal.SIGABRT)
            self.wait(1.0)
        self._kill_group()
        self._process.wait()

    def ending(self) -> str:
        """How the worker ended, in words."""
        status = self._process.returncode
        if status is None:
            return "still running"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"the process died by signal {-status} ({signal.Signals(-status).name})"
            return f"the process died by signal {-status}"
        return f"the process exited with status {status}"

    @property
    def status(self) -> int | None:
        return self._process.returncode

    def close(self) -> None:
        """Removes what is left of the worker: children of checks, and its files."""
        self._kill_group()
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def collect(job: dict[str, Any], autoload: bool = True, timeout: float = 300.0) -> tuple[list[dict[str, Any]], str]:
    """All lines of a worker that runs to its end, and how it ended, with the end of its output."""
    worker = Process(job, autoload)
    try:
        limit = time.monotonic() + timeout
        while not worker.wait():
            if time.monotonic() > limit:
                worker.kill()
        return worker.lines(), f"{worker.ending()}; {worker.output()}"
    finally:
        worker.close()
