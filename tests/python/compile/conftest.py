"""What the tests of compiled programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
