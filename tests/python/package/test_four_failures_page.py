"""The programs of docs/four-failures.md fail as the page says, and print what it quotes."""

from __future__ import annotations

import re
import signal
from concurrent.futures import Future

import pytest
from consoles import ConsolePage, Run
from documents import pattern_of

PAGE = ConsolePage("four-failures.md")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    with PAGE.results(tmp_path_factory.mktemp("four-failures")) as results:
        yield results


def test_each_program_is_run():
    PAGE.check()


@pytest.mark.parametrize("command", PAGE.runs)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    result, quoted = runs[command].result(), PAGE.runs[command]
    assert re.fullmatch(pattern_of(quoted), result.stdout.strip(), re.S), result.stdout
    if "Segmentation fault" in quoted:
        assert result.returncode == -signal.SIGSEGV
    else:
        assert result.returncode == ("Traceback" in quoted or "Error: " in quoted)
