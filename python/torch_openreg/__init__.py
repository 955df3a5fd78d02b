"""torch_openreg: an accelerator for PyTorch, called ``openreg``, that computes on the CPU.

``import torch`` is enough: PyTorch loads the package itself (the entry point ``_autoload``). Importing it by name
loads it too, even if ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` or another accelerator prevents the autoload.
"""

from __future__ import annotations

import sys

from ._build import VERSION as __version__

__all__ = ["__version__"]


def _autoload() -> None:
    """The entry point: ``import torch`` calls it at its end.

    It is defined before the code below imports torch: if this package is imported first, PyTorch calls the function
    while the package is only partly initialised.
    """
    from . import _loading

    if _imported_by_name:
        _loading.load()
    elif not _loading.autoload():
        # Not loaded. Removes the modules, so that a later `import torch_openreg` runs this file again and loads it.
        for name in [n for n in sys.modules if n == __name__ or n.startswith(__name__ + ".")]:
            del sys.modules[name]


def _torch_is_being_imported() -> bool:
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return getattr(spec, "_initializing", False)


# During `import torch` PyTorch's autoload imports this file, and calls _autoload() afterwards.
_imported_by_name = not _torch_is_being_imported()

if _imported_by_name:
    import torch  # noqa: F401  (calls _autoload() if it is the first import of torch)

    _autoload()
