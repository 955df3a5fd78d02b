"""Ranks that test modules share, since starting processes takes longer than what most tests do in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ranks import run_on_devices


@pytest.fixture(scope="session", params=[2, pytest.param(4, marks=pytest.mark.full)])
def of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], list[Any]]:
    """What a function returns in each rank. It is one of those that its module lists in `IN_RANKS`."""
    modules = dict.fromkeys(item.getparent(pytest.Module).obj for item in request.session.items)
    functions = [function for module in modules for function in getattr(module, "IN_RANKS", ())]
    return run_on_devices(request.param, tmp_path_factory.mktemp("ranks"), *functions)
