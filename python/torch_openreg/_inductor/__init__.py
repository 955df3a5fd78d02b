"""torch.compile with Inductor, PyTorch's compiler: C++ as for the CPU, launched as commands of the device.

Importing this package imports Inductor, so only `_patches` does it, when a program has begun to compile.
"""

import torch._inductor.compile_fx  # noqa: F401  registers the device: first of all, whoever comes here first
