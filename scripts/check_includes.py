"""Checks that sources include only what their layer may use.

All targets share one include path, so the compiler accepts any header of the project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A folder may include itself and everything above it in this list, except those beside it.
LAYERS: list[set[str]] = [
    {"runtime/address_space"},
    {"runtime/executor"},
    {"runtime"},
    {"memory"},
    {"slot"},
    {"backend"},
    {"ops/wire"},
    {"ops/launch"},
    {"ops/tensors"},
    {"ops/tiers", "ops/random", "ops/compiled", "ops/kernels"},
    {"distributed"},
    {"bindings"},
    {"slot/cuda", "slot/privateuse1"},  # whose headers every layer above `slot` includes by their names alone
]
_RANKS = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}
_WITHOUT_TORCH = {"runtime/address_space", "runtime/executor", "runtime", "memory"}
# Tools that every folder may include: they know nothing of devices and streams.
_TOOLS = {
    f"runtime/{name}.h" for name in ("device_name", "error", "mutex", "quantity", "round_up", "settings", "thread")
}
_WITH_PYTHON = {"bindings", "slot/cuda", "slot/privateuse1"}

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
_TORCH = re.compile(r"(ATen|c10|torch|caffe2)/")
_PYTHON = re.compile(r"(Python\.h|nanobind/|pybind11/|torch/csrc/(Py|utils/py|python))")


def folder_of(path: str) -> str:
    """The folder that is a layer: the first two parts of a path below cpp if LAYERS names them, else the first."""
    first, *rest = path.split("/")
    inner = "/".join([first, *rest[:1]])
    return inner if inner in _RANKS or first == "ops" else first


def complaints(sources: Path) -> Iterator[str]:
    """One complaint for each include that a layer must not have, and for each folder that has no layer."""
    for source in sorted(each for each in sources.rglob("*") if each.suffix in (".h", ".cpp")):
        path = source.relative_to(sources).as_posix()
        folder = folder_of(path)
        if folder not in _RANKS:
            yield f"{path}: {folder} has no layer in scripts/check_includes.py"
            continue
        for included in _INCLUDE.findall(source.read_text()):
            other = folder_of(included)
            if "/" in included and other in _RANKS:
                allowed = other == folder or _RANKS[other] < _RANKS[folder] or included in _TOOLS
            else:
                allowed = not (_TORCH.match(included) and folder in _WITHOUT_TORCH)
                allowed = allowed and not (_PYTHON.match(included) and folder not in _WITH_PYTHON)
            if not allowed:
                yield f"{path}: {folder} must not include {included}"


def main() -> int:
    """Prints the complaints; returns the exit status."""
    found = list(complaints(ROOT / "cpp"))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
