"""Scripts of the project as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(path: str) -> ModuleType:
    """The script at this path in the project, as a module of the file's name, which data classes need to find."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
