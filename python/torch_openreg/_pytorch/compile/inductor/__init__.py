"""torch.compile with Inductor, PyTorch's compiler: C++ as for the CPU, launched as commands of the device.

Importing this package imports Inductor, so only `_pytorch.patches` imports it, once a program compiles.

A patch of Inductor is a function in one of these modules, which `registration.register` calls; fixes that later
releases contain are in `backports`.
"""

import torch._inductor.compile_fx  # noqa: F401  registers the device, so it must come first
