"""Which of PyTorch's slots for a device this one takes. Here alone, and in ``cpp/slot``, it has a name."""

import torch

NAME = "openreg"
"""The type of the device: ``torch.device(NAME)``."""

KEY = "PrivateUse1"
"""The end of the names of its dispatch keys: ``AutogradPrivateUse1``."""

DEVICE_TYPE = torch._C._autograd.DeviceType.PrivateUse1.value
"""The number of its c10::DeviceType."""
