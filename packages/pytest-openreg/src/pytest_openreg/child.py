"""The process of one test: runs it with the options of the parent process, and writes its reports to a file.

`isolation` runs this as a file: python child.py JOB. The output has builtin types only.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

MARK = "openreg_process_of_one_test"
"""The attribute of the config that marks such a process."""

FILES = ("lfplugin", "nfplugin", "stepwiseplugin")
"""The plugins of pytest that keep files for the next run, which the parent process writes."""


class Log:
    """A plugin that writes reports and warnings to a file, each immediately, because the process may die."""

    def __init__(self, config: Any, path: str, nodeid: str) -> None:
        self.config, self.file, self.nodeid = config, Path(path).open("wb"), nodeid

    def _write(self, kind: str, content: object) -> None:
        pickle.dump((kind, content), self.file)
        self.file.flush()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._write("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        if nodeid == self.nodeid:
            written = {
                "category": warning_message.category.__name__,
                "text": str(warning_message.message),
                "file": warning_message.filename,
                "line": warning_message.lineno,
            }
            self._write("warning", written)


def _worker(worker: dict[str, str]) -> object:
    """A plugin with the fixtures of pytest-xdist for a process that a worker has started. It is not a worker itself."""
    import pytest

    class Worker:
        @pytest.fixture(scope="session")
        def worker_id(self) -> str:
            return worker["workerid"]

        @pytest.fixture(scope="session")
        def testrun_uid(self) -> str:
            return worker["testrunuid"]

    return Worker()


def main(job_file: str) -> int:
    job: dict[str, Any] = pickle.loads(Path(job_file).read_bytes())
    sys.path[:] = job["path"]
    import pytest

    config: Any = pytest.Config.fromdictargs(job["options"], job["arguments"])
    setattr(config, MARK, True)
    config.pluginmanager.register(Log(config, job["log"], job["nodeid"]))
    if job["worker"]:
        config.pluginmanager.register(_worker(job["worker"]))
    status = int(config.hook.pytest_cmdline_main(config=config))
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.current_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # Python would wait for the threads that the test has left, perhaps forever
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
