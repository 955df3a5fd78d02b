"""Each test of this folder runs with the race detector on, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from race_modes import race_detection


@pytest.fixture(autouse=True)
def races_are_errors() -> Iterator[None]:
    with race_detection("error"):
        yield
