"""The programs of docs/faults.md fail as the page says, and print what it quotes."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from consoles import ConsolePage, Run

PAGE = ConsolePage("faults.md")
runs = PAGE.runs()


def test_each_program_is_run():
    PAGE.check("ranks.py")


@pytest.mark.parametrize("command", PAGE.commands)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    result = PAGE.printed(command, runs)
    assert result.returncode == command.endswith("late_error.py")
