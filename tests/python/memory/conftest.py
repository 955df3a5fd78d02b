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
def run_alone(run_forked: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs a function in a separate process with an unused allocator, and returns what it printed.

    The function's source is what runs: it sees `torch` and `MIB`, and nothing else of its module. Keywords are
    environment variables.
    """

    def run(function: Callable[[], None], **variables: str | None) -> str:
        source = f"import torch\nMIB = 1 << 20\n{inspect.getsource(function)}\n{function.__name__}()\n"
        result = run_forked(source, **variables)
        assert "Exception ignored" not in result.stderr
        return result.stdout

    return run


def the_first_use_fails() -> None:
    assert torch.ones(2).sum() == 2
    for _ in range(2):
        try:
            torch.empty(1, device="openreg")
            raise AssertionError("it was accepted")
        except RuntimeError as e:
            print(str(e).splitlines()[0])


@pytest.fixture
def first_use_errors(run_alone: Callable[..., str]) -> Callable[..., list[str]]:
    """The first lines of what the first two uses of the device raise, under malformed settings."""
    return lambda **variables: run_alone(the_first_use_fails, **variables).splitlines()


@pytest.fixture
def stream_at_work() -> torch.Stream:
    """A stream of device 0 that is busy for some tenths of a second."""
    stream = torch.openreg.Stream(0)
    with stream:
        x = torch.rand(1000, 1000, device="openreg")
        for _ in range(40):
            x @ x
    return stream
