"""``pytest --openreg-cuda``: tests have a CUDA device that computes on the CPU."""

from __future__ import annotations

import os
import sys

import pytest

from ._options import VARIABLE, parse


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("openreg-cuda", "a CUDA device that computes on the CPU")
    group.addoption("--openreg-cuda", action="store_true", help="run the tests with an emulated CUDA device")
    group.addoption(
        "--openreg-cuda-profile",
        metavar="PROFILE",
        help="the same, with the properties of a GPU and a number of devices: a100:2",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest imports torch."""
    options = early_config.known_args_namespace
    request = options.openreg_cuda_profile or (os.environ.get(VARIABLE) or "1" if options.openreg_cuda else None)
    if request is None:
        return
    try:
        parse(request)
    except ValueError as error:
        raise pytest.UsageError(str(error).replace(VARIABLE, "--openreg-cuda-profile")) from None
    if "torch" in sys.modules and os.environ.get(VARIABLE) != request:
        raise pytest.UsageError(
            f"openreg: torch was imported before --openreg-cuda could take effect; set {VARIABLE}={request} instead"
        )
    os.environ[VARIABLE] = request
