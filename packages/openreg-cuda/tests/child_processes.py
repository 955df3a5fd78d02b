"""Programs that tests run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(
    *arguments: str | Path, cwd: Path | None = None, path: Path | None = None, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments and environment variables; None removes a variable.

    `path`: goes before what PYTHONPATH has.
    """
    if path:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=240)
