"""What memory is for: the programs of kind_programs.py."""

from __future__ import annotations

import kind_programs
import pytest
from forked_programs import code_of, programs_of

pytestmark = pytest.mark.any_device


@pytest.mark.parametrize("behaviour", programs_of(kind_programs, 3))
def test_the_memory_of_a_program_is_classified(run_forked, behaviour):
    run_forked(code_of(kind_programs, behaviour))
