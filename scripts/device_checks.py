#!/usr/bin/env python3
"""Lists where PyTorch's compiler asks for the type of a device, and compares that with device_checks.txt.

    python scripts/device_checks.py          what the installed torch asks and the table has no decision for
    python scripts/device_checks.py --list   all that it asks

A place is an expression in a function: a call of `is_gpu` and its like, an attribute such as `is_cpu`, or a comparison
with "cpu" or "mps", which share code. What asks for GPUs by name is for their kernels, and is left out.
`python/torch_openreg/_pytorch/compile` carries out the decisions that change something. For a new torch, run the
script, decide about each place that it prints, and add it to the table.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("_inductor", "_functorch", "_dynamo", "_subclasses", "_higher_order_ops", "fx")
FUNCTIONS = {"is_gpu", "is_cpu", "get_gpu_type", "device_need_guard", "is_triton", "GPU_TYPES"}
ATTRIBUTES = {"is_cpu", "is_mps", "is_gpu"}
DEVICES = {"cpu", "mps"}
WORDS = re.compile(rf"\b({'|'.join(sorted(FUNCTIONS | ATTRIBUTES | DEVICES))})\b")  # files without these are not parsed
TABLE = Path(__file__).with_name("device_checks.txt")


@dataclass(frozen=True, order=True)
class Place:
    function: str  # with its module, which counts from torch
    expression: str


@dataclass(frozen=True)
class Decision:
    decision: str  # the table says what each means
    functions: str  # a pattern
    expressions: frozenset[str]  # empty: all

    def covers(self, place: Place) -> bool:
        if self.expressions:
            return place.function == self.functions and place.expression in self.expressions
        return fnmatch.fnmatchcase(place.function, self.functions)


def asks(node: ast.AST) -> bool:
    """Whether this expression asks for the type of a device."""
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES | FUNCTIONS and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Compare):
        return any(names_a_device(each) for each in (node.left, *node.comparators))
    return False


def names_a_device(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(names_a_device(each) for each in node.elts)
    if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func) in ("torch.device", "OrderedSet"):
        return names_a_device(node.args[0])
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split(":")[0] in DEVICES


def places(root: Path) -> list[Place]:
    """All places in PyTorch's package at `root`."""
    found: set[Place] = set()
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            text = file.read_text()
            if WORDS.search(text):
                module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                found.update(places_of(ast.parse(text), module))
    return sorted(found)


def places_of(node: ast.AST, function: str) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        within = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within += f"{'.' if ':' in function else ':'}{child.name}"
        if asks(child):
            yield Place(function, shown(node if isinstance(node, ast.Call) and node.func is child else child))
        yield from places_of(child, within)


def shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def decisions(table: str) -> list[Decision]:
    """Of lines `decision function | expression | ...`, or `decision pattern`."""
    found = []
    for line in table.splitlines():
        if line and not line.startswith("#"):
            decision, rest = line.split(" ", 1)
            functions, *expressions = rest.split(" | ")
            found.append(Decision(decision, functions, frozenset(expressions)))
    return found


def undecided(found: list[Place], table: str) -> list[Place]:
    known = decisions(table)
    return [place for place in found if not any(decision.covers(place) for decision in known)]


def installed() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="all places, without the table")
    options = parser.parse_args()
    found = places(installed())
    shown_places = found if options.list else undecided(found, TABLE.read_text())
    for place in shown_places:
        print(f"{place.function} | {place.expression}")
    return 0 if options.list else int(bool(shown_places))


if __name__ == "__main__":
    sys.exit(main())
