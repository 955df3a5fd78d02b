"""The context manager: the programs of context_programs.py."""

from __future__ import annotations

import context_programs
import pytest
from forked_programs import code_of, programs_of

pytestmark = pytest.mark.any_device


@pytest.mark.parametrize("behaviour", programs_of(context_programs, 2))
def test_the_work_of_a_block_is_measured(run_forked, behaviour):
    run_forked(code_of(context_programs, "define_tiny", behaviour))
