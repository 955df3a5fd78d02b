"""The programs of docs/four-failures.md fail as the page says, and print what it quotes."""

from __future__ import annotations

import signal
from concurrent.futures import Future

import pytest
from consoles import ConsolePage, Run

PAGE = ConsolePage("four-failures.md")
runs = PAGE.runs()


def test_each_program_is_run():
    PAGE.check()


@pytest.mark.parametrize("command", PAGE.commands)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    result, quoted = PAGE.printed(command, runs), PAGE.commands[command]
    if "Segmentation fault" in quoted:
        assert result.returncode == -signal.SIGSEGV
    else:
        assert result.returncode == ("Traceback" in quoted or "Error: " in quoted)
