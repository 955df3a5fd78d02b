"""The one setting that is read before the library is loaded. All others are read in cpp/base/settings.cpp."""

from __future__ import annotations

import os

_VARIABLE = "TORCH_OPENREG_AUTOLOAD"
_ALLOWED = ("default", "force", "off")


def autoload_choice() -> str:
    """The value of ``TORCH_OPENREG_AUTOLOAD``: ``default``, ``force`` or ``off``.

    A malformed value counts as the default, because it must not break ``import torch``; `check` reports it later.
    """
    value = os.environ.get(_VARIABLE, "default")
    return value if value in _ALLOWED else "default"


def is_malformed() -> bool:
    """Whether `check` raises."""
    return os.environ.get(_VARIABLE, "default") not in _ALLOWED


def check() -> None:
    """Raises RuntimeError if the variable is malformed. Called at the first use of the device."""
    if is_malformed():
        value = os.environ[_VARIABLE]
        raise RuntimeError(f"openreg: {_VARIABLE} is malformed (got {value!r}, expected one of {', '.join(_ALLOWED)})")
