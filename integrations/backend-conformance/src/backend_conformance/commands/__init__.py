"""The commands, one in each file. A command takes its arguments and returns the exit status."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

_NAMES = ("run", "list", "explain")


def main(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in _NAMES else ("run", arguments)
    status: int = importlib.import_module(f".{name}", __package__).main(rest)
    return status
