"""Fixtures that the tests of memory share."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of memory go first: they count what is allocated, and others leave tensors behind."""
    items.sort(key=lambda item: Path(__file__).parent not in item.path.parents)


@pytest.fixture
def run_alone(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs a function in a process of its own, whose allocator nobody has used, and returns what it printed.

    The function's source is what runs: it sees `torch` and `MIB`, and nothing else of its module. Keywords are
    environment variables.
    """

    def run(function: Callable[[], None], **variables: str | None) -> str:
        source = f"import torch\nMIB = 1 << 20\n{inspect.getsource(function)}\n{function.__name__}()\n"
        result = run_python(source, **variables)
        assert "Exception ignored" not in result.stderr
        return result.stdout

    return run


@pytest.fixture
def stream_at_work() -> torch.Stream:
    """A stream of device 0 that is busy for some tenths of a second."""
    stream = torch.openreg.Stream(0)
    with stream:
        x = torch.rand(1000, 1000, device="openreg")
        for _ in range(40):
            x @ x
    return stream
