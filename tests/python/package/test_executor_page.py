"""The programs of docs/executor.md go on after their kernels have crashed, and print what the page quotes."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from consoles import ConsolePage, Run

PAGE = ConsolePage("executor.md")
runs = PAGE.runs()


def test_each_program_is_run():
    PAGE.check()


@pytest.mark.parametrize("command", PAGE.commands)
def test_the_command_prints_what_the_page_quotes(command: str, runs: dict[str, Future[Run]]):
    assert PAGE.printed(command, runs).returncode == 0
