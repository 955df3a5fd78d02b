"""Pages with programs and commands: the commands print what the page quotes, and end as it says."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
from consoles import ConsolePage, Run, changed

PAGES = {
    name: ConsolePage(name) for name in ("../README.md", "four-failures.md", "races.md", "faults.md", "executor.md")
}
COMMANDS = [(name, command) for name, page in PAGES.items() for command in page.commands]


def status(name: str, command: str) -> int:
    """The exit status of a command, as its page says."""
    quoted = PAGES[name].commands[command]
    if name == "../README.md":  # it quotes a part of a traceback
        return 1
    if name == "executor.md":
        return 0
    if name == "faults.md":
        return int(command.endswith("late_error.py"))
    if "Segmentation fault" in quoted:
        return -signal.SIGSEGV
    return int("Traceback" in quoted or "Error: " in quoted)


@pytest.fixture(scope="module")
def results_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], dict[str, Future[Run]]]]:
    """The results of a page's commands, which run once for all tests of the page."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(PAGES[name].results(tmp_path_factory.mktemp("page"))))


@pytest.mark.parametrize("name", PAGES)
def test_each_program_is_run(name: str):
    PAGES[name].check(*["ranks.py"] * (name == "faults.md"))


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_the_command_prints_what_the_page_quotes(
    results_of: Callable[[str], dict[str, Future[Run]]], name: str, command: str
):
    assert PAGES[name].printed(command, results_of(name)).returncode == status(name, command)


PROGRAM = "a = 1\nfor b in range(2):\n    a += b\n\nprint(a)\n"


def test_each_hunk_changes_the_lines_that_it_quotes():
    hunks = "-a = 1\n+a = 2\n for b in range(2):\n@@\n     a += b\n \n+a += 1\n print(a)\n"
    assert changed(PROGRAM, hunks) == "a = 2\nfor b in range(2):\n    a += b\n\na += 1\nprint(a)\n"


@pytest.mark.parametrize("hunk", ["-a = 3\n+a = 2\n", "-a\n+b\n", " a = 1\n print(a)\n+b\n"])
def test_a_hunk_that_is_not_in_the_program_once_is_an_error(hunk):
    with pytest.raises(AssertionError, match="is not in the program once"):
        changed(PROGRAM, hunk)
