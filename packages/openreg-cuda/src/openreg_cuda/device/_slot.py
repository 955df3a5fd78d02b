"""The slot of PyTorch that the device takes: CUDA's."""

from __future__ import annotations

from types import ModuleType

from .. import _install, _preconditions

NAME = "cuda"
"""The type of the device: ``torch.device(NAME)``."""

CAPTURES_COMPILED_GRAPHS = True
"""Whether Inductor captures graphs of the device: its trees of graphs call torch.cuda by name."""

KEY = "CUDA"
"""The end of the names of its dispatch keys: ``AutogradCUDA``."""

UNNEEDED_PATCHES = frozenset(
    {
        "patches:patch_dlpack_device",  # PyTorch knows the type
        "attention:register_flex_autocast",  # PyTorch has the kernel
        "compile.dynamo_interface:register_device_context",  # Dynamo knows torch.cuda.device, the device's class
    }
)
"""Those of `_pytorch.patches` that this slot does without."""


def check_free() -> None:
    """Raises ImportError if this process may not have an emulated CUDA device."""
    _preconditions.check()
    _install.set_environment()


def is_published(module: ModuleType | None) -> bool:
    """Whether torch.cuda has the functions of `module` already."""
    return module is not None and _install.is_installed(module)


def take() -> None:
    """PyTorch knows the name."""


def publish(module: ModuleType) -> None:
    """Gives torch.cuda the functions of `module`."""
    _install.install(module)
