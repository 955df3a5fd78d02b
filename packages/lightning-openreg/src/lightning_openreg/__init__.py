"""Lightning on the accelerator openreg: ``Trainer(accelerator="openreg")``.

No import is needed: PyTorch calls `register` at the end of ``import torch``. If TORCH_DEVICE_BACKEND_AUTOLOAD=0
prevents that, ``import lightning_openreg`` calls it. Neither imports Lightning.
"""

from __future__ import annotations

from .registration import register

__all__ = ["register"]

register()
