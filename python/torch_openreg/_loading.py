"""Loads the device into torch: checks, the library, the names."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import ModuleType

import torch

from . import _build, _slot

_ACCELERATORS = ("cuda", "xpu", "mtia", "mps")
# All other settings are read in cpp/base/settings.cpp.
_AUTOLOAD = "TORCH_OPENREG_AUTOLOAD"
_FITS = "TORCH_OPENREG_FITS"
_CHOICES = ("default", "force", "off")
_HINT = "run `pip uninstall torch_openreg` or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"

log = logging.getLogger("torch_openreg")


def autoload() -> bool:
    """Loads the device unless torch has another accelerator or a setting prevents it; returns whether it did.

    ``torch.accelerator`` prefers a PrivateUse1 backend over CUDA, so loading this one would replace an accelerator that
    is available. ``TORCH_OPENREG_AUTOLOAD`` overrides this.
    """
    _register_log()  # in any case: `import torch` raises for a name in TORCH_LOGS that it does not know
    choice = autoload_choice()
    if choice == "off" or _is_cuda_emulated():
        return False
    if choice != "force" and (other := available_accelerator()):
        log.warning(
            "torch_openreg is not loaded because %s is available; `import torch_openreg` or "
            "TORCH_OPENREG_AUTOLOAD=force loads it anyway, TORCH_OPENREG_AUTOLOAD=off silences this message",
            other,
        )
        return False
    load()
    return True


def load() -> None:
    """Loads the device into torch. Further calls do nothing.

    Raises:
        ImportError: the library was built for another version of torch; the library is broken; or another package has
            registered PyTorch's only out-of-tree backend.
    """
    if _slot.is_published(sys.modules.get(f"{__package__}.openreg")):
        return
    _check_torch_version()
    _slot.check_free()
    _load_library()
    _slot.take()

    from . import openreg
    from ._pytorch import at_exit, fake_world, patches

    _slot.publish(openreg)
    fake_world.enter_from_environment()
    patches.apply()
    _register_log()
    at_exit.follow_functions_at_exit()
    if folder := os.environ.get(_FITS):
        from .fits import program

        program.prepare(Path(folder))


def autoload_choice() -> str:
    """The value of ``TORCH_OPENREG_AUTOLOAD``: ``default``, ``force`` or ``off``.

    A malformed value counts as the default, because it must not break ``import torch``; `check_settings` reports it
    later.
    """
    value = os.environ.get(_AUTOLOAD, "default")
    return value if value in _CHOICES else "default"


def has_malformed_setting() -> bool:
    """Whether `check_settings` raises."""
    return os.environ.get(_AUTOLOAD, "default") not in _CHOICES


def check_settings() -> None:
    """Raises RuntimeError if the variable is malformed. Called at the first use of the device."""
    if has_malformed_setting():
        value = os.environ[_AUTOLOAD]
        raise RuntimeError(f"openreg: {_AUTOLOAD} is malformed (got {value!r}, expected one of {', '.join(_CHOICES)})")


def available_accelerator() -> str | None:
    """The name of another accelerator that torch has and that is available, or None. Never raises."""
    for name in _ACCELERATORS:
        module = getattr(torch, name, None)
        if module is not None and _is_available(module):
            return name
    return None


def _is_cuda_emulated() -> bool:
    """Whether openreg-cuda is installed and requested: a process can use only one of the two."""
    asked_for = os.environ.get("OPENREG_CUDA", "0") not in ("", "0")
    return asked_for and importlib.util.find_spec("openreg_cuda") is not None


def _is_available(module: ModuleType) -> bool:
    # Without this variable CUDA initialises its driver to answer, and a forked child cannot use CUDA afterwards.
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
            f"installed: build it again for that torch, or {_HINT}"
        )


def _load_library() -> None:
    try:
        from . import _C  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"torch_openreg's library cannot be loaded: {error}; reinstall torch_openreg, or, to use torch without it, "
            f"{_HINT}"
        ) from error


def _register_log() -> None:
    """Registers the package's log for ``TORCH_LOGS=openreg`` and ``torch._logging.set_logs``."""
    torch._logging._internal.register_log("openreg", __package__)
