"""Runs the Python code of pages, each page in a process of its own; writes a report as JSON lines.

python run_pages.py REPORT PAGE...

The processes are forked after the import of torch, which is most of the time of such programs; the device is not yet in
use then, so it works in each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from documents import ROOT, Block, page_of


def run(block: Block, names: dict[str, object]) -> dict[str, object]:
    """Runs a block, and says what came of it; line numbers of tracebacks are those of the page."""
    if block.alone:
        Path("program.py").write_text(block.first + block.code)
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True)
        error = done.stderr if done.returncode else ""
        return {"page": block.page, "line": block.line, "error": error, "printed": done.stdout}
    printed, error = io.StringIO(), ""
    code = compile("\n" * (block.line - 1) + block.code, str(ROOT / block.page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        try:
            exec(block.first, names)
            exec(code, names)
            torch.accelerator.synchronize()
        except BaseException:
            error = traceback.format_exc()
    return {"page": block.page, "line": block.line, "error": error, "printed": printed.getvalue()}


def run_page(path: str, report: int) -> None:
    """Runs a page's blocks, in order, in a folder of its own."""
    names: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in page_of(ROOT / path).programs:
            if not block.reason:
                os.write(report, json.dumps(run(block, names)).encode() + b"\n")
        os.chdir("/")


def main() -> None:
    report = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for path in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            run_page(path, report)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            dead = {"page": path, "line": 0, "error": f"the process ended with status {status}", "printed": ""}
            os.write(report, json.dumps(dead).encode() + b"\n")


if __name__ == "__main__":
    main()
