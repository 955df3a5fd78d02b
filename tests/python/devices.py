"""The device that tests use.

`TEST_DEVICE=cuda pytest --openreg-cuda tests/python` runs on another device what does not depend on torch_openreg: the
tests whose code, with the functions and constants that it uses, has no name with "openreg".
The mark `of_openreg` is such a name.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from pathlib import Path

import pytest

OPENREG = "openreg"
DEVICE = os.environ.get("TEST_DEVICE", OPENREG)
_TESTS = Path(__file__).parent
# Fixtures for child processes, whose programs name it, and scripts that fork after they have asked for the device's
# properties, which CUDA does not allow.
_OF_OPENREG_ONLY = {"run_python", "run_forked", "install", "CENSUS"}


def needs_openreg(file: Path) -> bool:
    """Whether a file of tests is about the package, or cannot be imported without it."""
    if file.parent.name == "package":
        return True
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return re.search("torch[._]openreg|PrivateUse1", ast.unparse(tree)) is not None


def only_for_openreg(item: pytest.Item) -> bool:
    """Whether a test depends on torch_openreg."""
    function = getattr(item, "originalname", item.name)
    return function in _names_of_openreg(item.path)


@functools.cache
def _names_of_openreg(file: Path) -> frozenset[str]:
    """The functions, classes and constants of a file, its own or imported, that depend on torch_openreg."""
    found = set(_OF_OPENREG_ONLY)
    for folder in {file.parent, _TESTS} if file.name.startswith("test_") else ():
        if (folder / "conftest.py").exists():
            found |= _names_of_openreg(folder / "conftest.py")  # fixtures
    uses: dict[str, set[str]] = {}
    for node in ast.parse(file.read_text()).body:
        names = _defined_by(node)
        if isinstance(node, ast.ImportFrom) and node.module == Path(__file__).stem:
            continue  # the device's name is what differs
        if isinstance(node, ast.ImportFrom) and (helper := _helper(file, node.module)):
            of_openreg = _names_of_openreg(helper)
            found |= {each.asname or each.name for each in node.names if each.name in of_openreg}
        elif re.search("openreg|PrivateUse1", ast.unparse(node), re.IGNORECASE):
            found |= names
        for name in names:
            uses[name] = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            uses[name] |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}  # fixtures
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    return frozenset(found)


def _helper(file: Path, module: str | None) -> Path | None:
    """The file of a module that tests share."""
    candidates = [folder / f"{module}.py" for folder in (file.parent, _TESTS)]
    return next((each for each in candidates if each.exists()), None)


def _defined_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {each.asname or each.name for each in node.names}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
