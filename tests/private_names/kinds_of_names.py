"""What a name is in the installed torch: `python kinds_of_names.py` reads names, and prints their kinds as JSON."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
import types
from typing import Any


def kinds(names: list[str]) -> dict[str, str]:
    """What each name is in the installed torch, as PyTorch has it: in a process without the packages' patches."""
    command = [sys.executable, __file__]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OPENREG_CUDA": ""}
    result = subprocess.run(
        command, input="\n".join(names), env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def describe(name: str) -> str:
    """The type of a value, or a function with its parameters."""
    parts = name.split(".")
    found: Any = None
    for number in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:number]))
        except ImportError:
            continue
        break
    for at, part in enumerate(parts[number:], number):
        owner, found = found, inspect.getattr_static(found, part, _MISSING)
        if found is _MISSING and not inspect.isclass(owner):
            found = getattr(owner, part, _MISSING)  # of a module's or an object's __getattr__
        if found is _MISSING and inspect.isfunction(owner):
            return "named in the function" if part in inspect.getsource(owner) else "absent"
        if found is _MISSING:
            return "of objects" if inspect.isclass(owner) and part in _of_objects(owner) else "absent"
        if isinstance(owner, (dict, list, set, tuple, str)):
            return f"method of a {type(owner).__name__}"
        if isinstance(found, (property, types.GetSetDescriptorType)) and at + 1 < len(parts):
            return f"behind the property {'.'.join(parts[: at + 1])}"
    return _kind(found)


_MISSING = object()


def _of_objects(owner: type) -> set[str]:
    try:
        trees = [ast.parse(textwrap.dedent(inspect.getsource(each))) for each in owner.__mro__[:-1]]
    except (OSError, TypeError):
        return set()
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    names = {node.attr for node in nodes if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"}
    return names.union(*(vars(each).get("__annotations__", ()) for each in owner.__mro__))


def _kind(value: Any) -> str:
    if isinstance(value, (staticmethod, classmethod)):
        return f"{type(value).__name__} {_kind(value.__func__)}"
    if inspect.isclass(value):
        return f"class{_parameters(value)}"
    name = "function" if inspect.isfunction(value) else type(value).__name__
    return f"{name}{_parameters(value)}" if callable(value) else name


def _parameters(value: Any) -> str:
    """Without annotations; of a default only that there is one."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _DEFAULT)
        for each in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


class _Default:
    def __repr__(self) -> str:
        return "..."


_DEFAULT = _Default()


if __name__ == "__main__":
    print(json.dumps({name: describe(name) for name in sys.stdin.read().split()}))
