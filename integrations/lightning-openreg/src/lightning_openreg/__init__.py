"""Lightning on the accelerator openreg: ``Trainer(accelerator="openreg")``.

Nothing has to be imported: PyTorch calls `register` at the end of ``import torch``. Where
TORCH_DEVICE_BACKEND_AUTOLOAD=0 prevents that, ``import lightning_openreg`` does it. Neither imports Lightning.
"""

from __future__ import annotations

from .registration import register

__all__ = ["register"]

register()
