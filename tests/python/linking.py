"""What cannot be tested where PyTorch cannot link C++: in a folder with a space, which it does not quote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

TORCH = str(Path(torch.__file__).parent)
REASON = f"PyTorch, on the CPU too, cannot link C++ if its folder has a space or other special character: {TORCH}"


def is_taken_apart(path: str) -> bool:
    """Whether a shell, or Python's shlex, reads something else."""
    return re.search(r"""[\s'"\\$&;()<>|*?#`]""", path) is not None


CANNOT_LINK = is_taken_apart(TORCH)

# For tests that start a process that links. Those that compile in their own process need no mark.
links = pytest.mark.skipif(CANNOT_LINK, reason=REASON)


def skip_what_inductor_compiles() -> None:
    """From now on, a test in which Inductor compiles C++ is skipped."""
    from torch._inductor.cpp_builder import CppBuilder

    def build(self: Any) -> NoReturn:
        pytest.skip(REASON)  # no Exception: PyTorch catches those

    CppBuilder.build = build
