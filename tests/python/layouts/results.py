"""Results of the device beside those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from devices import DEVICE


def tensor_pairs(got: Any, expected: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of both, which have to be as many; what else there is has to be equal."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            yield from tensor_pairs(a, b)
    elif isinstance(expected, torch.Tensor):
        assert got.device.type == DEVICE and got.dtype == expected.dtype
        yield got, expected
    else:
        assert got == expected
