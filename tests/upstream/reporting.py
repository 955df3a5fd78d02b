"""A plugin of pytest that notes each test before it begins and when it has ended, so that a crash has a name."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from directing import accept_own_sentences, say_that_there_is_a_gpu, stand_in_for_missing_names, with_imported


def read_names(variable: str) -> Any:
    """The tests that a file lists, or None."""
    return json.loads(Path(os.environ[variable]).read_text()) if variable in os.environ else None


REPORT = Path(os.environ["UPSTREAM_REPORT"])
SKIP = set(read_names("UPSTREAM_SKIP") or [])
ONLY = read_names("UPSTREAM_ONLY")
FILE = Path(os.environ["UPSTREAM_FILE"])
GPU = os.environ.get("UPSTREAM_GPU")
SHARE = float(os.environ.get("UPSTREAM_SHARE", 1))
UNTIL = float(os.environ.get("UPSTREAM_UNTIL", "inf"))

if os.environ.get("UPSTREAM_SENTENCES") == "own":
    accept_own_sentences()
if GPU:
    say_that_there_is_a_gpu(GPU)
# Of no other files: to import torch.cuda._sanitizer traces the device, and PyTorch's hook for it can lose an error.
stand_in_for_missing_names(with_imported(FILE) if GPU else [FILE])


def write(**what: Any) -> None:
    with REPORT.open("a") as report:
        report.write(json.dumps(what) + "\n")


def name_of(node: str) -> str:
    """Class and function, without the file."""
    return node.split("::", 1)[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = None if ONLY is None else set(ONLY)
    names = [name_of(item.nodeid) for item in items]
    items[:] = [
        item
        for item, name in zip(items, names, strict=True)
        if name not in SKIP and (number_of(name) < SHARE if wanted is None else name in wanted)
    ]
    write(collects=[name_of(item.nodeid) for item in items])
    if SHARE < 1 or UNTIL < float("inf"):  # so that what time allows is a part of the same sample
        items.sort(key=lambda item: number_of(name_of(item.nodeid)))


def number_of(name: str) -> float:
    """A random number from 0 to 1, the same in each process and on each machine."""
    return float(zlib.crc32(name.encode()) / 2**32)


def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    return True if time.time() > UNTIL else None  # as if it had been run, without a report


@pytest.fixture(autouse=True)
def raise_errors_of_the_device() -> Generator[None, None, None]:
    """What the commands of a test leave behind is that test's error, and not the next one's."""
    yield
    errors = []
    for index in range(torch.accelerator.device_count()):
        while error := error_of(index):
            errors.append(error)
    if errors:
        raise errors[0]


def error_of(index: int) -> RuntimeError | None:
    try:
        torch.accelerator.synchronize(index)
    except RuntimeError as error:
        return error
    return None


def pytest_runtest_logstart(nodeid: str) -> None:
    write(begins=name_of(nodeid))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    report = (yield).get_result()
    # The call decides, unless the test does not get that far, or leaves something behind.
    if report.when == "call" or not report.passed:
        text = "" if report.passed else str(report.longrepr)
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        write(name=name_of(item.nodeid), outcome=outcome, text=text[-4000:])
