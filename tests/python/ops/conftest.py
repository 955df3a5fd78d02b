"""Fixtures that the tests of operators share."""

from __future__ import annotations

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
