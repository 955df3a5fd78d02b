"""Checks of arguments, before anything is done, with the same exception types as torch.cuda."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .. import _C
from .._slot import NAME


class CurrentDevice:
    """The base class of ``torch.openreg.device``, which is accepted as a device, too."""

    idx: int


DeviceLike = torch.device | str | int | None


def _current_device() -> int:
    if not torch.compiler.is_compiling() and _C.in_bad_fork():
        _C.init()  # raises: a forked child has no current device
    return _C.current_device()


def device_index(
    device: DeviceLike | CurrentDevice,
    *,
    optional: bool = True,
    negative_is_current: bool = False,
    missing: type[Exception] = RuntimeError,
) -> int:
    """The index of `device`: an index, a string such as ``"openreg:1"`` or a torch.device.

    torch.cuda takes the same, but mistakes any other object for the current device.

    Args:
        optional: whether None and a device without an index mean the current device.
        negative_is_current: whether a negative index means the current device.
        missing: the exception type if there is no such device.

    Raises:
        ValueError: `device` is not a device, has another type, or lacks a required index.
        RuntimeError: PyTorch cannot parse the string as a device.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != NAME:
            raise ValueError(f"openreg: the device has the wrong type (got {device}, expected {NAME})")
        index = device.index
    elif isinstance(device, int):
        index = int(device)  # PyTorch's functions refuse a bool
    elif device is None and optional:
        index = None
    elif isinstance(device, CurrentDevice):
        index = device.idx
    else:
        raise _no_device(device)
    if index is None:
        if not optional:
            raise ValueError(f"openreg: the device has no index (got {device}, expected {_range()})")
        return _current_device()
    if index < 0 and negative_is_current:
        return _current_device()
    if not 0 <= index < _C.device_count():
        _C.init()  # raises if the reason is a malformed setting
        raise missing(
            f"openreg: The device index is out of range (got {index}, expected {_range()}); "
            "TORCH_OPENREG_DEVICES sets how many devices there are"
        )
    return index


def index_or_current(device: DeviceLike) -> int:
    """The index of `device`, which must have one; None means the current device."""
    return device_index(device, optional=device is None)


def _range() -> str:
    return f"0 to {_C.device_count() - 1}" if _C.device_count() else "none, because a setting is malformed"


def _no_device(device: object) -> ValueError:
    return ValueError(
        f"openreg: this is not a device (got {device!r}, expected an index from {_range()}, a string such as "
        f"'{NAME}:0', or a torch.device)"
    )


def check_integer(what: str, value: int, smallest: int, largest: int) -> int:
    """`value` as an int, if it is an integer (of Python or NumPy) from `smallest` to `largest`.

    Raises:
        TypeError: `value` is not an integer.
        ValueError: `value` is out of range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"openreg: {what} is not an int (got {value!r}, expected {smallest} to {largest})")
    if not smallest <= number <= largest:
        raise ValueError(f"openreg: {what} is out of range (got {value}, expected {smallest} to {largest})")
    return number


def c_integer(what: str, value: Any, smallest: int, largest: int, expected: str = "an int") -> int:
    """`value` as an int, as PyTorch's bindings convert it for torch.cuda: bools and anything with `__index__` count.

    Raises:
        TypeError: `value` has no `__index__`.
        OverflowError: `value` is out of range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"openreg: {what} has the wrong type (got {value!r}, expected {expected})") from None
    if not smallest <= number <= largest:
        raise OverflowError(f"openreg: {what} is out of range (got {value}, expected {smallest} to {largest})")
    return number


def check_flags(**flags: object) -> None:
    """Raises the error of `c_integer` if a flag is neither a bool nor an integer from 0 to 255."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            c_integer(name, value, 0, 255, "a bool")


def unsigned(what: str, value: Any, expected: str) -> int:
    """`value` as an int, which must be one from 0 to 2**64 - 1; raises TypeError, as pybind11 does for torch.cuda."""
    if not hasattr(value, "__index__") or not 0 <= operator.index(value) < 2**64:
        raise TypeError(f"openreg: {what} has the wrong type (got {value!r}, expected {expected})")
    return operator.index(value)


def truth(what: str, value: object) -> bool:
    """`value` as a bool, as PyTorch's bindings convert it for torch.cuda: None is False, and numbers are accepted.

    Raises:
        TypeError: `value` is no number.
    """
    if value is not None and not hasattr(type(value), "__bool__"):
        raise TypeError(f"openreg: {what} has the wrong type (got {value!r}, expected a bool)")
    return bool(value)


def check_type(what: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raises TypeError if `value` is not an instance of `kinds`."""
    if not isinstance(value, kinds):
        raise TypeError(f"openreg: {what} has the wrong type (got {value!r}, expected {expected})")


def pool_id(pool: object) -> tuple[int, int]:
    """The id of a memory pool, given directly or as a MemPool's `id`; raises TypeError for anything else."""
    match pool:
        case (int(first), int(second)) | object(id=(int(first), int(second))) if (
            0 <= first < 2**64 and 0 <= second < 2**64
        ):
            return first, second
    raise TypeError(f"openreg: this is not the id of a pool (got {pool!r}, expected a MemPool or its `id`)")
