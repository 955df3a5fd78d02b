"""The marker `openreg_fits`: the test fails if its work does not fit on a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .outstanding import own_module


def declare_marker(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "openreg_fits('h100'): the test fails if its work does not fit on that GPU")


def profile(item: pytest.Item) -> str | None:
    """The GPU of the test's marker; None if it has none."""
    marker = item.get_closest_marker("openreg_fits")
    return None if marker is None else str(marker.args[0])


def check_marker(item: pytest.Item) -> None:
    """Raises UsageError if a marker of the test is malformed. An unknown GPU is an error of the test."""
    for marker in item.iter_markers("openreg_fits"):
        if marker.kwargs or len(marker.args) != 1 or not isinstance(marker.args[0], str):
            example = '@pytest.mark.openreg_fits("h100")'
            raise pytest.UsageError(f"openreg: {item.nodeid}: invalid openreg_fits: it takes one GPU, as in {example}")


@contextmanager
def of_marker(item: pytest.Item) -> Iterator[None]:
    """Measures the test, and adds the report to what pytest prints about it if it fails or does not fit."""
    name = profile(item)
    if name is None:
        yield
        return
    report: Any = None
    try:
        with (own_module() or importlib.import_module("openreg_cuda")).fits(name) as report:
            yield
    except BaseException:
        if report is not None and report.measured:
            item.add_report_section("call", "stderr", str(report))
        raise
    if report.measured and not report.fits:
        item.add_report_section("call", "stderr", str(report))
        pytest.fail(f"openreg: the test {report.verdict}", pytrace=False)
