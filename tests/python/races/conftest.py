"""Each test of this folder runs with the race detector on, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def races_are_errors() -> Iterator[None]:
    before = torch.openreg.get_race_detection_mode()
    torch.openreg.set_race_detection_mode("error")
    yield
    torch.openreg.set_race_detection_mode(before)
