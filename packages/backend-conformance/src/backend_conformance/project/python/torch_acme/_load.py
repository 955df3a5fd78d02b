"""Loads the library and gives the device its name, in the order that PyTorch needs."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import torch

from ._build import TORCH_MINOR  # type: ignore[import-not-found, unused-ignore]  # written by the build


@cache
def load() -> None:
    """Does not use the device: programs that import torch for something else must not pay for it."""
    found = ".".join(torch.__version__.split(".")[:2])
    if found != TORCH_MINOR:
        raise ImportError(
            f"torch_acme was compiled for torch {TORCH_MINOR} (got {found}); install it again, "
            "with `pip install --no-build-isolation --force-reinstall --no-deps`"
        )
    torch.ops.load_library(Path(__file__).with_name("libtorch_acme.so"))
    torch.utils.rename_privateuse1_backend("acme")
    from . import acme

    torch._register_device_module("acme", acme)
    # Tensor.acme(), Tensor.is_acme, Module.acme(), and the same for storages
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    acme._dlpack.install()
    atexit.register(_finish)


def _finish() -> None:
    """Runs before the interpreter ends: see settle_autograd in csrc/python.cpp."""
    from . import acme

    if acme.is_initialized():
        torch.ops.torch_acme.settle_autograd()
