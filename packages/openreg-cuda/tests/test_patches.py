"""Each patch states its reason. What they patch is in the table of tests/private_names."""

from __future__ import annotations

import inspect

import pytest
import torch  # noqa: F401  (loads the device, which the package cannot do while it is being imported)

from openreg_cuda import _patches

LATER = (*_patches.WHEN_IMPORTED, *_patches.OF_OTHER_LIBRARIES)
NAMES = [*_patches.AT_ONCE, *(name for _, name in LATER)]


@pytest.mark.parametrize("name", NAMES)
def test_each_patch_states_its_reason(name: str) -> None:
    source = inspect.getsource(getattr(_patches, name))
    assert source.splitlines()[1].strip().startswith("#"), source
