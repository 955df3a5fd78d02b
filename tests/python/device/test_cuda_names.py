"""The names that code written for torch.cuda finds in ``torch.openreg``."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest
import torch
from modules import load

ROOT = Path(__file__).parents[3]


cuda_names = load("scripts/cuda_names.py")


def test_the_page_is_what_the_script_prints():
    """With another torch there are other names, which must have their reasons too."""
    page, written = (ROOT / "docs/cuda-names.md").read_text(), cuda_names.page()
    if f"of PyTorch {cuda_names.TORCH}'s" in page:
        assert page == written, "run: python scripts/cuda_names.py > docs/cuda-names.md"


def callables_of_both() -> list[str]:
    names = []
    for part in cuda_names.MODULES["torch.cuda"]:
        ours = cuda_names.module_of(part)
        theirs = importlib.import_module(f"torch.cuda.{part}".rstrip("."))
        names += [
            f"{part}.{name}".lstrip(".")
            for name in cuda_names.public_names(theirs)
            if hasattr(ours, name) and inspect.isroutine(getattr(theirs, name))
        ]
    private = ["_exchange_device", "_get_rng_state_offset", "_lazy_call", "_maybe_exchange_device"]
    return [*names, *private, "_set_rng_state_offset", "_set_stream_by_id", "_sleep"]


@pytest.mark.parametrize("name", callables_of_both())
def test_functions_take_the_arguments_of_cuda(name):
    def parameters(package: ModuleType) -> dict[str, inspect.Parameter]:
        function = package
        for part in name.split("."):
            function = getattr(function, part)
        return dict(inspect.signature(function).parameters)

    if name.endswith("_exchange_device") and inspect.isbuiltin(getattr(torch.cuda, name)):
        return  # in a CUDA build of torch a function in C++, without names of parameters
    theirs, ours = parameters(torch.cuda), parameters(torch.openreg)
    if "kwargs" in theirs and name != "nvtx.range":  # _lazy_call's are about when to call
        del theirs["kwargs"]
    assert theirs.keys() <= ours.keys()
    positional = [key for key, parameter in theirs.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert list(ours)[: len(positional)] == positional
    for key, parameter in ours.items():
        needs_no_value = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        may_be_left_out = key not in theirs or theirs[key].default is not parameter.empty
        assert needs_no_value or not may_be_left_out, key
