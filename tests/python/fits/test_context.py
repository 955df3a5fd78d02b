"""The context manager: the programs of context_programs.py."""

from __future__ import annotations

from pathlib import Path

import context_programs
import pytest

pytestmark = pytest.mark.any_device

FOLDER = Path(__file__).parent
BEHAVIOURS = [
    name
    for name, value in vars(context_programs).items()
    if getattr(value, "__module__", "") == context_programs.__name__ and name.count("_") >= 2
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_work_of_a_block_is_measured(run_forked, behaviour):
    paths = [str(FOLDER), str(FOLDER.parent)]
    code = f"import context_programs; context_programs.define_tiny(); context_programs.{behaviour}()"
    run_forked(f"import sys; sys.path[:0] = {paths}; {code}")
