"""Mixed precision. ``torch.autocast`` asks for the dtypes; csrc/autocast.cpp has the lists of operators."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True
