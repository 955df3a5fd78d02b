"""The programs of docs/four-failures.md fail as the page says, and print what it quotes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from children import child_environment
from documents import DOCUMENTS, pattern_of

PAGE = (DOCUMENTS / "four-failures.md").read_text()
PROGRAMS = {
    re.match(r"# (\w+\.py)\n", code)[1]: code for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
}
RUNS = dict(re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.M | re.S))  # what each command prints

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Each command's result. They run side by side: most of their time is the import of torch."""
    folder = tmp_path_factory.mktemp("four-failures")
    for name, code in PROGRAMS.items():
        (folder / name).write_text(code)
    environment = {name: None for name in os.environ if name.startswith("TORCH_OPENREG_")}  # no settings but the page's
    environment |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}  # teams of several processes disturb each other

    def run(command: str) -> Run:
        words = shlex.split(command)
        python = words.index("python")
        variables = dict(setting.split("=", 1) for setting in words[:python])
        return subprocess.run(
            [sys.executable, *words[python + 1 :]],
            env=child_environment([], {**environment, **variables}),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )

    with ThreadPoolExecutor(3) as pool:
        yield {command: pool.submit(run, command) for command in RUNS}


def test_each_program_is_run():
    assert PAGE.count("\n$ ") == len(RUNS)
    assert PROGRAMS.keys() == {name for command in RUNS for name in re.findall(r"\w+\.py", command)}


@pytest.mark.parametrize("command", RUNS)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    result, quoted = runs[command].result(), RUNS[command]
    assert re.fullmatch(pattern_of(quoted), result.stdout.strip(), re.S), result.stdout
    if "Segmentation fault" in quoted:
        assert result.returncode == -signal.SIGSEGV
    else:
        assert result.returncode == ("Traceback" in quoted)
