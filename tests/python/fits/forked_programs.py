"""Modules whose functions are programs, each run in a process of its own by a test."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent


def programs_of(module: ModuleType, underscores: int) -> list[str]:
    """The functions of `module` whose names are sentences: they have at least so many underscores."""
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name.count("_") >= underscores
    ]


def code_of(module: ModuleType, *functions: str) -> str:
    """A program that calls functions of `module`."""
    calls = "; ".join(f"{module.__name__}.{function}()" for function in functions)
    return f"import sys; sys.path[:0] = {[str(FOLDER), str(FOLDER.parent)]}; import {module.__name__}; {calls}"
