"""The commands of docs/fits.md print what the page says."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCUMENTS, page_of

BLOCKS = page_of(DOCUMENTS / "fits.md").blocks
PROGRAM = BLOCKS[0].code
COMMANDS = [(block, after) for block, after in itertools.pairwise(BLOCKS) if block.language == "sh"]


def masked(text: str) -> str:
    """Without what differs from run to run: times, and the memory of this machine."""
    text = re.sub(r"[\d.]+ s$", "T s", text, flags=re.MULTILINE)
    return re.sub(r"^(host +)[\d.]+ [KMG]iB", r"\1SIZE", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "at", [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, len(COMMANDS)))]
)
def test_a_command_of_the_page_prints_its_output(tmp_path: Path, at: int) -> None:
    command, expected = COMMANDS[at]
    (tmp_path / "train.py").write_text(PROGRAM)
    words = shlex.split(command.code)
    assert words[0] == "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_OPENREG_")}
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode in (0, 1), done.stderr
    assert masked(done.stdout).endswith(masked(expected.code))
