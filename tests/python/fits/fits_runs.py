"""Runs ``python -m torch_openreg fits`` on small programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIDE = 256
WEIGHT = 4 * SIDE * SIDE

TRAIN = f"""
import sys, torch
batch = int(sys.argv[sys.argv.index("--batch") + 1]) if "--batch" in sys.argv else 32
model = torch.nn.Linear({SIDE}, {SIDE}, bias=False, device="openreg")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(1000):
    optimizer.zero_grad()
    model(torch.randn(batch, {SIDE}, device="openreg")).sum().backward()
    optimizer.step()
"""


@dataclass
class Result:
    status: int
    output: str
    errors: str
    json: dict[str, Any]
    html: str


def fits(folder: Path, code: str, *options: str, arguments: tuple[str, ...] = (), **variables: str) -> Result:
    """The command in a folder, whose train.py is the code."""
    (folder / "train.py").write_text(code)
    files = ["--json", "report.json", "--html", "report.html"]
    command = [sys.executable, "-m", "torch_openreg", "fits", *files, *options, "train.py", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, env={**os.environ, **variables}
    )
    report, page = folder / "report.json", folder / "report.html"
    return Result(
        done.returncode,
        done.stdout,
        done.stderr,
        json.loads(report.read_text()) if report.exists() else {},
        page.read_text() if page.exists() else "",
    )
