"""Legacy types: ``torch.openreg.FloatTensor``, ``FloatStorage`` and those of the other dtypes."""

from __future__ import annotations

from typing import Any

import torch
from torch.storage import _LegacyStorage

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
_STORAGE_DTYPES = {**_DTYPES, "ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}


class _TensorType(type):
    """Creates tensors, and is the type of tensors of its dtype, like the types of ``torch.cuda``."""

    dtype: torch.dtype

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        """The name without its module, which the type's own name contains because `Tensor.type` reads that."""
        full: str = type.__dict__["__name__"].__get__(cls)
        return full.rpartition(".")[2]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "openreg" and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        made: torch.Tensor = getattr(torch, cls.__name__)(*args)
        return made.to("openreg")


def _tensor_type(prefix: str, dtype: torch.dtype) -> _TensorType:
    doc = f"Creates tensors of {dtype} on the device from a size or data, as ``torch.{prefix}Tensor`` does on the CPU."
    attributes = {"__module__": "torch.openreg", "__qualname__": f"{prefix}Tensor", "__doc__": doc, "dtype": dtype}
    return _TensorType(f"torch.openreg.{prefix}Tensor", (), attributes)


def _storage_type(prefix: str, dtype: torch.dtype) -> type[_LegacyStorage]:
    doc = f"Typed storage of {dtype} on the device. PyTorch advises against typed storages."
    attributes = {"__module__": "torch.openreg", "__doc__": doc, "_dtype": dtype, "dtype": dtype}
    return type(f"{prefix}Storage", (_LegacyStorage,), attributes)


TYPES: dict[str, type] = {
    **{f"{prefix}Tensor": _tensor_type(prefix, dtype) for prefix, dtype in _DTYPES.items()},
    **{f"{prefix}Storage": _storage_type(prefix, dtype) for prefix, dtype in _STORAGE_DTYPES.items()},
}
