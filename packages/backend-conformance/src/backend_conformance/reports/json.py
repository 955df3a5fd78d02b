"""Results as a file."""

from __future__ import annotations

import json
from pathlib import Path

from ..result import Summary


def write(summary: Summary, path: Path) -> None:
    path.write_text(json.dumps(summary.to_json(), indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Summary:
    """Reads a file that `write` wrote. Raises ValueError if it is another one."""
    try:
        return Summary.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a results file of this kit: {error}") from error
