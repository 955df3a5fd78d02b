"""The commands, one in each file: `main` takes the arguments and returns the exit status."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

_MODULES = {
    "run": "backend_conformance.commands.run",
    "list": "backend_conformance.commands.list",
    "explain": "backend_conformance.commands.explain",
    "pages": "backend_conformance.commands.pages",
    "compare": "backend_conformance.commands.compare",
    "matrix": "backend_conformance.commands.matrix",
    "new": "backend_conformance.new",
}


def main(arguments: Sequence[str]) -> int:
    """Runs the command that the first argument names, or `run`."""
    if arguments and (name := arguments[0].removeprefix("--")) in _MODULES:  # `--compare a b` is `compare a b`
        rest = arguments[1:]
    else:
        name, rest = "run", arguments
    status: int = importlib.import_module(_MODULES[name]).main(rest)
    return status
