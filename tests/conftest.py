"""What all test runs share: slow tests wait for ``--full``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the slow tests too (marked full)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects, rather than skips, the slow tests, so that every skip that is reported has a reason to be read."""
    if config.getoption("--full"):
        return
    slow = [item for item in items if item.get_closest_marker("full")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
