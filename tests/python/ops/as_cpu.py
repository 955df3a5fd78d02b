"""The same call on the CPU and on the device: both have to answer alike, be it a result or an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from devices import DEVICE
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def moved(value: Any, device: str) -> Any:
    return tree_map(lambda leaf: leaf.clone().to(device) if isinstance(leaf, torch.Tensor) else leaf, value)


def sentence(error: Exception) -> str:
    """What was said, with one spelling of the types of tensors, which name their device."""
    of_the_device = rf"(?:CPU|{DEVICE}|{DEVICE.upper()})(\w+)Type"
    text = re.sub(rf"torch\.(?:{DEVICE}\.)?(\w+)Tensor|{of_the_device}", r"\1\2 tensor", str(error))
    return re.sub(rf"{DEVICE}(:0)?|cpu", "DEVICE", text).rstrip(".")


def answer(function: Callable[..., Any], arguments: Any, device: str) -> Any:
    """What the call returns on a device, or the error that it raises, at the call or when the host waits."""
    try:
        result = function(*moved(arguments, device))
        torch.accelerator.synchronize()
        return result
    except Exception as error:
        return error


def assert_same_tensor(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.device.type == DEVICE
    assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
    got = got.cpu()
    if got.dtype.is_complex:
        got, expected = torch.view_as_real(got.resolve_conj()), torch.view_as_real(expected.resolve_conj())
    try:
        assert_close(got, expected, equal_nan=True)
    except (RuntimeError, NotImplementedError):  # the CPU compares no such numbers
        bits = BITS[got.element_size()]
        assert_close(got.contiguous().view(bits), expected.contiguous().view(bits))


def assert_as_cpu(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the CPU returned a result. Raises AssertionError where the device answers otherwise."""
    expected = answer(function, arguments, "cpu")
    got = answer(function, arguments, DEVICE)
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"no error; the CPU raises {expected!r}"
        assert type(got) is type(expected), f"{got!r}; the CPU raises {expected!r}"
        assert sentence(got) == sentence(expected)
        return False
    if isinstance(got, Exception):
        raise AssertionError(f"{got!r}; the CPU raises nothing") from got
    for g, e in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        if isinstance(e, torch.Tensor):
            assert_same_tensor(g, e)
        else:
            assert g == e or g != g
    return True
