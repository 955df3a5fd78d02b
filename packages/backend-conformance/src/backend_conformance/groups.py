"""The groups of checks: the files of a folder. Only workers import them, because they import torch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from . import registry

CHECKS_FOLDER = Path(__file__).parent / "checks"
_PACKAGE = f"{__package__}.checks"


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if not path.name.startswith("_"))


def load(folder: Path, name: str) -> list[registry.Check]:
    """Imports a group as a module of the package `checks`, wherever its folder is: `random.py` hides no other."""
    package = importlib.import_module(_PACKAGE)
    package.__path__ = [str(folder)]
    importlib.import_module(f"{_PACKAGE}.{name}")
    return [each for each in registry.CHECKS.values() if each.group == name]


def introduction(name: str) -> str:
    return (sys.modules[f"{_PACKAGE}.{name}"].__doc__ or "").strip()
