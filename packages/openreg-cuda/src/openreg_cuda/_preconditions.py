"""Where CUDA is not emulated: on a machine with a GPU, and with a torch that was built for one."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/kfd")


def check() -> None:
    """Raises ImportError unless this process may have an emulated CUDA device."""
    if torch.version.cuda or torch.version.hip or hasattr(torch._C, "_cuda_getDeviceCount"):
        raise ImportError(
            f"openreg-cuda needs a torch that was built without CUDA (got {torch.__version__}): run `{_CPU_BUILD}`, or "
            "unset OPENREG_CUDA"
        )
    for driver in _DRIVERS:
        if Path(driver).exists():
            raise ImportError(
                f"openreg-cuda cannot emulate CUDA on a machine that has a GPU ({driver} exists): unset OPENREG_CUDA"
            )
    if "torch_openreg._C" in sys.modules:
        raise ImportError(
            "openreg-cuda cannot be loaded: torch_openreg is loaded already, and a process can use only one of them; "
            "import torch with OPENREG_CUDA set, before torch_openreg"
        )
