"""What the tests of other libraries' trainers share: the code of docs/trainers.md, a model and its data."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from documents import code_of
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.utils.data import TensorDataset

BATCH, ROWS, WIDTH = 8, 48, 16  # of all ranks together


def needs(library: str, way: str = "the extra 'trainers' of this package has it") -> list[pytest.MarkDecorator]:
    """The marks of a library's tests; `way` is how it is installed."""
    missing = importlib.util.find_spec(library) is None
    reason = f"{library} is not installed; {way}"
    return [pytest.mark.full, pytest.mark.skipif(missing, reason=reason)]


def documented(library: str) -> list[str]:
    """The pieces of code in a section of the document: first what users copy, then a program with it."""
    return code_of("trainers.md", library)


@functools.cache
def documented_names(library: str) -> dict[str, Any]:
    """What the section's first piece defines. It runs once in a process."""
    names: dict[str, Any] = {}
    exec(documented(library)[0], names)
    return names


def run_program(folder: Path, pieces: list[str], *launcher: str) -> str:
    """What a program prints that is made of the pieces."""
    program = folder / "train.py"
    program.write_text("\n".join(pieces))
    command = [sys.executable, *launcher, str(program)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_trainers(size: int, folder: Path, *functions: Callable[[int], Any], **environment: str) -> list[dict[str, Any]]:
    """What each rank gets from each function, by its name. The ranks work in `folder`. A single one has no group."""
    return run_ranks(
        _in_folder, size, folder, folder, *functions, backend="" if size == 1 else None, environment=environment
    )


def _in_folder(rank: int, folder: Path, *functions: Callable[[int], Any]) -> dict[str, Any]:
    os.chdir(folder)
    if dist.is_initialized():
        os.environ["LOCAL_RANK"] = str(rank)
    return run_in_turn(rank, *functions)


def ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))


def data() -> TensorDataset:
    torch.manual_seed(1)
    x = torch.randn(ROWS, WIDTH)
    return TensorDataset(x, x.sum(1, keepdim=True))


def forget_accelerator() -> None:
    """Lets the next Accelerator of the process be made differently: they share their state."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_FSDP", None)
