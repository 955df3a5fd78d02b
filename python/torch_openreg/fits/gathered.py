"""Labels the parameters that FSDP gathers from all ranks for a module, and frees again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import _C
from .._pytorch.post_import import when_imported
from .modules import Modules

# Their methods allocate what is gathered, of FSDP2 and of FSDP1, in the versions of PyTorch that have them.
_PLACES = (
    ("torch.distributed.fsdp._fully_shard._fsdp_param", "FSDPParam", "alloc_all_gather_outputs"),
    ("torch.distributed.fsdp._flat_param", "FlatParamHandle", "_alloc_padded_unsharded_flat_param"),
)

_recording: list[Modules] = []


def follow(modules: Modules) -> None:
    """Labels from now on, until `unfollow`."""
    if not _followed:
        for module, of, method in _PLACES:
            when_imported(module, functools.partial(_wrap, of=of, method=method))
        _followed.append(True)
    _recording[:] = [modules]


def unfollow() -> None:
    _recording.clear()


_followed: list[bool] = []  # the methods are replaced once


def _wrap(module: ModuleType, of: str, method: str) -> None:
    owner = getattr(module, of, None)
    original: Callable[..., Any] | None = getattr(owner, method, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not _recording:
            return original(*args, **kwargs)
        before = _C.set_allocation_tag(0)
        _C.set_allocation_tag(_recording[0].gathering_tag(before))
        try:
            return original(*args, **kwargs)
        finally:
            _C.set_allocation_tag(before)

    setattr(owner, method, wrapped)
