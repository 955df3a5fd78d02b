"""What openreg-cuda patches in PyTorch exists, and each patch states its reason."""

from __future__ import annotations

import importlib
import inspect
import operator
import subprocess
import sys

import pytest
import torch  # noqa: F401  (loads the device, which the package cannot do while it is being imported)

from openreg_cuda import _patches

TARGETS = [
    *(("torch", target) for _, targets in _patches.AT_ONCE for target in targets),
    *((module, target) for module, _, targets in _patches.WHEN_IMPORTED for target in targets),
]


@pytest.mark.parametrize(("module", "target"), TARGETS)
def test_the_target_of_a_patch_exists(module: str, target: str) -> None:
    assert operator.attrgetter(target)(importlib.import_module(module)) is not None


def test_targets_exist_without_the_device() -> None:
    source = f"""
import importlib, operator
for module, target in {TARGETS!r}:
    try:
        operator.attrgetter(target)(importlib.import_module(module))
    except AttributeError as error:
        print(module, target, error)
"""
    environment = {"PATH": "/usr/bin:/bin", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment)
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr


LATER = (*_patches.WHEN_IMPORTED, *_patches.OF_OTHER_LIBRARIES)
NAMES = [*(name for name, _ in _patches.AT_ONCE), *(name for _, name, _ in LATER)]


@pytest.mark.parametrize("name", NAMES)
def test_each_patch_states_its_reason(name: str) -> None:
    source = inspect.getsource(getattr(_patches, name))
    assert source.splitlines()[1].strip().startswith("#"), source
