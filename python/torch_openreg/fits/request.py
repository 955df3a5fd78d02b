"""What the command requests of the program's processes, and where these write their reports. Needs no torch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "TORCH_OPENREG_FITS"
"""A folder with the request: set for the processes of a program, and inherited by those that they start."""

_FILE = "request.json"


@dataclass(frozen=True)
class Request:
    """What a process does.

    Attributes:
        steps: the steps after which the program ends; a step ends with ``optimizer.step()``.
        usable: bytes of a device that may be reserved; None: all.
        quiet: whether no progress is printed.
        profile: the GPU that the device stands for.
    """

    steps: int
    usable: int | None = None
    quiet: bool = False
    profile: str | None = None

    def write(self, folder: Path) -> None:
        (folder / _FILE).write_text(json.dumps(asdict(self)))


def read(folder: Path) -> Request:
    """
    Raises:
        RuntimeError: the folder has no request.
    """
    try:
        text = (folder / _FILE).read_text()
    except OSError:
        raise RuntimeError(
            f"openreg: {VARIABLE} is malformed (got {str(folder)!r}, expected a folder that `fits` has made)"
        ) from None
    return Request(**json.loads(text))


def folder_of_process() -> Path | None:
    """Where this process's report belongs; None if nobody has requested one."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def rank() -> int:
    """The rank that a launcher such as torchrun has given this process; 0 without one."""
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def report_file(folder: Path) -> Path:
    """Of this process: ranks in order, and one file for each process even if several have no rank."""
    return folder / f"rank-{rank():05d}-{os.getpid()}.json"


def report_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank-*.json"))
