"""What child processes of the tests find: their environment, and packages with metadata."""

from __future__ import annotations

import os
from pathlib import Path


def child_environment(path: list[Path], variables: dict[str, str | None]) -> dict[str, str]:
    """The environment of a child process: ours, with `path` first in PYTHONPATH, changed by `variables`."""
    environment = dict(os.environ)
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*map(str, path), environment.get("PYTHONPATH")]))
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment


def write_metadata(site: Path, name: str, entry_points: str) -> None:
    """What an installer leaves beside a package: here, all that Python's importlib.metadata reads."""
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
