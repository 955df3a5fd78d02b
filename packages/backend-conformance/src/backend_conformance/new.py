"""Writes the project of a new backend: it builds, installs and trains, and its tests run this kit."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).parent / "project"
_NAME = "acme"  # in the template
_DOT = "dot_"  # instead of a leading dot in names of files: packages leave such files out
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_SKIPPED = {"__pycache__", ".ruff_cache", ".mypy_cache"}


class BadName(ValueError):
    """PyTorch cannot give a device this name."""


def check_name(name: str) -> None:
    """Raises BadName, with the reason."""
    if not re.fullmatch(r"[a-z][a-z_]*", name):  # torch.device accepts nothing else, not even digits
        raise BadName(f"a device name may contain only lower-case letters and underscores (got {name!r})")
    torch = _torch_alone()
    try:
        torch.device(name)
    except RuntimeError:
        pass
    else:
        raise BadName(f"torch already has a device type {name!r}")
    owners = {"torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.Module": torch.nn.Module}
    for owner, where in owners.items():
        if hasattr(where, name):
            raise BadName(f"{owner}.{name} already exists, and a backend would define it")


def _torch_alone() -> Any:
    """torch, imported without the backends of the environment, which would take names."""
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        return importlib.import_module("torch")
    finally:
        if before is None:
            del os.environ[_AUTOLOAD]
        else:
            os.environ[_AUTOLOAD] = before


def write(name: str, folder: Path) -> list[Path]:
    """Writes the project, and returns its files. Raises BadName, or FileExistsError if the folder is not empty."""
    check_name(name)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    written = []
    for source in sorted(TEMPLATE.rglob("*")):
        relative = source.relative_to(TEMPLATE)
        if source.is_dir() or _SKIPPED.intersection(relative.parts):
            continue
        target = folder.joinpath(*(_renamed(_with_dot(part), name) for part in relative.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        written.append(target)
    return written


def _with_dot(part: str) -> str:
    return "." + part.removeprefix(_DOT) if part.startswith(_DOT) else part


def _renamed(text: str, name: str) -> str:
    class_name = "".join(word.capitalize() for word in name.split("_"))
    for old, new in ((_NAME, name), (_NAME.upper(), name.upper()), (_NAME.capitalize(), class_name)):
        text = text.replace(old, new)
    return text


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance new", description=__doc__)
    made.add_argument("name", metavar="NAME", help='the device name, as in torch.ones(2, device="NAME")')
    made.add_argument("--folder", type=Path, help="where to write the project (default: torch_NAME)")
    options = made.parse_args(arguments)
    folder: Path = options.folder or Path(f"torch_{options.name}")
    try:
        files = write(options.name, folder)
    except (BadName, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{folder}: {len(files)} files. README.md explains each. Next:\n")
    print("    pip install scikit-build-core cmake ninja   # and torch, if it is not installed")
    print(f"    pip install --no-build-isolation {folder}")
    print(f"""    python -c 'import torch; print(torch.ones(2, device="{options.name}") + 1)'""")
    print(f"    pytest {folder}")
    return 0
