"""What memory is for: the programs of kind_programs.py."""

from __future__ import annotations

from pathlib import Path

import kind_programs
import pytest

pytestmark = pytest.mark.any_device

FOLDER = Path(__file__).parent
BEHAVIOURS = [
    name
    for name, value in vars(kind_programs).items()
    if getattr(value, "__module__", "") == kind_programs.__name__ and name.count("_") >= 3
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_memory_of_a_program_is_classified(run_forked, behaviour):
    paths = [str(FOLDER), str(FOLDER.parent)]
    run_forked(f"import sys; sys.path[:0] = {paths}; import kind_programs; kind_programs.{behaviour}()")
