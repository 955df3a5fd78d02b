"""How the device comes to be in torch: checks, the library, the names."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from types import ModuleType

import torch

from . import _build, _settings

NAME = "openreg"
_ACCELERATORS = ("cuda", "xpu", "mtia", "mps")
_WAYS_OUT = "run `pip uninstall torch_openreg` or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"

log = logging.getLogger("torch_openreg")


def autoload() -> bool:
    """Loads the device, unless it should stand back; returns whether it is loaded.

    PyTorch prefers a PrivateUse1 backend over CUDA in ``torch.accelerator``, so it stays away from a machine that has
    an accelerator. ``TORCH_OPENREG_AUTOLOAD`` overrides that.
    """
    choice = _settings.autoload_choice()
    if choice == "off":
        return False
    if choice != "force" and (other := available_accelerator()):
        log.warning(
            "torch_openreg stands back because %s is available; `import torch_openreg` or TORCH_OPENREG_AUTOLOAD=force "
            "loads it all the same, TORCH_OPENREG_AUTOLOAD=off silences this line",
            other,
        )
        return False
    load()
    return True


def load() -> None:
    """Loads the device into torch. Does nothing the second time.

    Raises:
        ImportError: the installed torch is not the one the library was built for; the library is broken;
            or another package has taken PyTorch's only slot for a backend outside of its tree.
    """
    name = f"{__package__}.openreg"
    if name in sys.modules and sys.modules.get(f"torch.{NAME}") is sys.modules[name]:
        return
    _check_torch_version()
    _check_name()
    _load_library()

    from torch.utils import backend_registration

    backend_registration.rename_privateuse1_backend(NAME)

    from . import _leaks, _patches, openreg

    torch._register_device_module(NAME, openreg)
    # `import torch.openreg.memory` gives the submodule that is there, not a second copy of it.
    for module in [m for m in sys.modules if m.startswith(name + ".")]:
        sys.modules[f"torch.{module.removeprefix(__package__ + '.')}"] = sys.modules[module]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _patches.apply()
    _register_log()
    atexit.register(_leaks.forget_what_python_holds)  # runs before the device is shut down


def available_accelerator() -> str | None:
    """The name of another accelerator that torch has and that is available, or None. Never raises."""
    for name in _ACCELERATORS:
        module = getattr(torch, name, None)
        if module is not None and _is_available(module):
            return name
    return None


def _is_available(module: ModuleType) -> bool:
    # Without this variable CUDA answers by initialising its driver, after which a forked child cannot use CUDA.
    variable = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        return bool(module.is_available())
    except Exception:
        return False
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _check_torch_version() -> None:
    # The layout of what a backend implements and fills changes between minor versions, not within one.
    installed = str(torch.__version__)
    if installed.split(".")[:2] != _build.TORCH_VERSION.split(".")[:2]:
        raise ImportError(
            f"torch_openreg {_build.VERSION} was built for torch {_build.TORCH_VERSION}, but torch {installed} is "
            f"installed: build it again for that torch, or {_WAYS_OUT}"
        )


def _check_name() -> None:
    taken = torch._C._get_privateuse1_backend_name()
    module = getattr(torch, taken, None)
    if taken in ("privateuseone", NAME) and module is None:
        return
    package = "an unnamed package" if module is None else module.__name__.partition(".")[0]
    raise ImportError(
        f"torch_openreg cannot load beside {package}: PyTorch allows one backend from outside, and {package} has made "
        f"it {taken!r} already; uninstall one of the two, or set TORCH_OPENREG_AUTOLOAD=off to keep torch_openreg out"
    )


def _load_library() -> None:
    try:
        from . import _C  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"torch_openreg's library cannot be loaded: {error}; reinstall torch_openreg, or to use torch without it "
            f"{_WAYS_OUT}"
        ) from error


def _register_log() -> None:
    """Makes ``TORCH_LOGS=openreg`` and ``torch._logging.set_logs`` know the package's log."""
    torch._logging._internal.register_log(NAME, __package__)
