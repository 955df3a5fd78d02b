"""The version of the generators, for Inductor's cache of programs, which does not know a backend's classes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from .... import __version__


@functools.cache
def version_of_programs() -> str:
    """Changes with everything that could invalidate an old program: the package's version and its Python sources."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[3].rglob("*.py")):
        digest.update(file.read_bytes())
    return f"torch_openreg {__version__} {digest.hexdigest()}"


class VersionOfPrograms(CustomGraphModulePass):
    """A pass that does nothing. PyTorch includes a pass's `uuid` in the key of each cached program."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        pass

    def uuid(self) -> str:
        return version_of_programs()
