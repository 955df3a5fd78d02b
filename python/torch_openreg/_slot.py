"""The slot of PyTorch that the device takes: its name, its keys, its registration. All that names it is here and in
``cpp/slot``."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

NAME = "openreg"
"""The type of the device: ``torch.device(NAME)``."""

UNNEEDED_PATCHES: frozenset[str] = frozenset()
"""Those of `_pytorch.patches` that this slot does without."""

CAPTURES_COMPILED_GRAPHS = False
"""Whether Inductor captures graphs of the device: its trees of graphs call torch.cuda by name."""

KEY = "PrivateUse1"
"""The end of the names of its dispatch keys: ``AutogradPrivateUse1``."""


def check_free() -> None:
    """Raises ImportError if another package has the slot, or this device another slot."""
    if "openreg_cuda.device._C" in sys.modules:
        raise ImportError(
            "torch_openreg cannot be loaded: openreg-cuda is loaded already, and a process can use only one of them; "
            "unset OPENREG_CUDA"
        )
    taken = torch._C._get_privateuse1_backend_name()
    module = getattr(torch, taken, None)
    if taken in ("privateuseone", NAME) and module is None:
        return
    package = "an unnamed package" if module is None else module.__name__.partition(".")[0]
    raise ImportError(
        f"torch_openreg cannot be loaded together with {package}: PyTorch supports one out-of-tree backend, and "
        f"{package} has registered it as {taken!r}; uninstall one of the two, or set TORCH_OPENREG_AUTOLOAD=off to "
        "disable torch_openreg"
    )


def is_published(module: ModuleType | None) -> bool:
    """Whether `module` is the device's module already."""
    return module is not None and sys.modules.get(f"torch.{NAME}") is module


def take() -> None:
    """Names the device. Called when its library has been loaded."""
    from torch.utils import backend_registration

    backend_registration.rename_privateuse1_backend(NAME)


def publish(module: ModuleType) -> None:
    """Makes `module` the device's module, ``torch.openreg``, and adds methods such as ``Tensor.openreg()``."""
    from torch.utils import backend_registration

    torch._register_device_module(NAME, module)
    # `import torch.openreg.memory` must return the existing submodule, not a second copy.
    for name in [n for n in sys.modules if n.startswith(module.__name__ + ".")]:
        sys.modules[f"torch.{NAME}{name.removeprefix(module.__name__)}"] = sys.modules[name]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
