"""The version of what generated programs are made by. Inductor's cache does not know a backend's classes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from .. import __version__


@functools.cache
def version_of_programs() -> str:
    """Changes with anything that could make an old program wrong: the package and its sources here."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return f"torch_openreg {__version__} {digest.hexdigest()}"


class VersionOfPrograms(CustomGraphModulePass):
    """A pass that does nothing. PyTorch enters a pass's `uuid` into the key of each cached program."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        pass

    def uuid(self) -> str:
        return version_of_programs()
