"""Fixtures that the tests of operators share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import torch
import waits


@pytest.fixture
def seeded() -> None:
    """The same random numbers in each run."""
    torch.manual_seed(0)


@pytest.fixture
def no_waits() -> Iterator[None]:
    """An operator that makes the host wait raises an error."""
    with waits.no_waits():
        yield


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """A library of its own for each test: definitions are the process's."""
    library = torch.library.Library(f"openreg_{uuid.uuid4().hex}", "DEF")
    yield library
    library._destroy()
