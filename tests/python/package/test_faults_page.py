"""The programs of docs/faults.md fail as the page says, and print what it quotes."""

from __future__ import annotations

import re
from concurrent.futures import Future

import pytest
from consoles import ConsolePage, Run
from documents import pattern_of

PAGE = ConsolePage("faults.md")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    with PAGE.results(tmp_path_factory.mktemp("faults")) as results:
        yield results


def test_each_program_is_run():
    run = {name for command in PAGE.runs for name in re.findall(r"\w+\.py", command)}
    assert PAGE.text.count("\n$ ") == len(PAGE.runs)
    assert PAGE.programs.keys() == run | {"ranks.py"}  # which launch.py runs


@pytest.mark.parametrize("command", PAGE.runs)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    result, quoted = runs[command].result(), PAGE.runs[command]
    assert re.fullmatch(pattern_of(quoted), result.stdout.strip(), re.S), result.stdout
    assert result.returncode == (command.endswith("late_error.py"))
