"""Pages with programs and commands: a block of `diff` makes one program from another."""

from __future__ import annotations

import pytest
from consoles import changed

PROGRAM = "a = 1\nfor b in range(2):\n    a += b\n\nprint(a)\n"


def test_each_hunk_changes_the_lines_that_it_quotes():
    hunks = "-a = 1\n+a = 2\n for b in range(2):\n@@\n     a += b\n \n+a += 1\n print(a)\n"
    assert changed(PROGRAM, hunks) == "a = 2\nfor b in range(2):\n    a += b\n\na += 1\nprint(a)\n"


@pytest.mark.parametrize("hunk", ["-a = 3\n+a = 2\n", "-a\n+b\n", " a = 1\n print(a)\n+b\n"])
def test_a_hunk_that_is_not_in_the_program_once_is_an_error(hunk):
    with pytest.raises(AssertionError, match="is not in the program once"):
        changed(PROGRAM, hunk)
