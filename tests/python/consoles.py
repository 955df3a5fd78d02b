"""Pages whose programs are saved under the names in their first lines and run by the commands that the page shows.

A program can also be a change of another one: a block of `diff` with both names and hunks without line numbers.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from children import child_environment
from documents import DOCUMENTS, pattern_of

Run = subprocess.CompletedProcess[str]
_CHANGE = re.compile(r"^```diff\n--- (\w+\.py)\n\+\+\+ (\w+\.py)\n(.*?)^```", re.M | re.S)


def changed(program: str, hunks: str) -> str:
    """The program after a change: the lines of each hunk are in it once."""
    for hunk in re.split(r"^@@.*\n", hunks, flags=re.M):
        before, after = (
            "".join(line[1:] + "\n" for line in hunk.splitlines() if line[:1] != sign) for sign in ("+", "-")
        )
        assert program.count(before) == 1, f"{before!r} is not in the program once"
        program = program.replace(before, after)
    return program


class ConsolePage:
    """A page: its programs by name, and what each command prints."""

    def __init__(self, name: str) -> None:
        self.text = (DOCUMENTS / name).read_text()
        codes = re.findall(r"^```python\n(.*?)^```", self.text, re.M | re.S)
        self.programs = {re.match(r"# (\w+\.py)\n", code)[1]: code for code in codes}
        for name, new_name, hunks in _CHANGE.findall(self.text):
            self.programs[new_name] = changed(self.programs[name], hunks)
        self.commands = dict(re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", self.text, re.M | re.S))

    def check(self, *run_by_programs: str) -> None:
        """Each command is there once, and each program is run, by a command or by another program."""
        assert self.text.count("\n$ ") == len(self.commands)
        run = {name for command in self.commands for name in re.findall(r"\w+\.py", command)}
        assert self.programs.keys() == run | set(run_by_programs)

    @contextmanager
    def results(self, folder: Path) -> Iterator[dict[str, Future[Run]]]:
        """Each command's result. They run side by side: most of their time is the import of torch."""
        for name, code in self.programs.items():
            (folder / name).write_text(code)
        settings: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TORCH_OPENREG_")}
        settings |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}  # teams of several processes disturb each other

        def run(command: str) -> Run:
            words = shlex.split(command)
            python = words.index("python")
            variables = dict(setting.split("=", 1) for setting in words[:python])
            return subprocess.run(
                [sys.executable, *words[python + 1 :]],
                env=child_environment([], {**settings, **variables}),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
            )

        with ThreadPoolExecutor(3) as pool:
            yield {command: pool.submit(run, command) for command in self.commands}

    def printed(self, command: str, results: dict[str, Future[Run]]) -> Run:
        """The command's result, which has printed what the page quotes."""
        result = results[command].result()
        assert re.fullmatch(pattern_of(self.commands[command]), result.stdout.strip(), re.S), result.stdout
        return result
