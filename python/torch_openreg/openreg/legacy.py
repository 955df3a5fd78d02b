"""Legacy types: ``torch.openreg.FloatTensor``, ``FloatStorage`` and those of the other dtypes."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import torch
from torch.storage import _LegacyStorage

from .._slot import NAME

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


class TensorType(type):
    """Creates tensors, and is the type of tensors of its dtype, like the types of ``torch.cuda``."""

    dtype: torch.dtype
    layout: torch.layout

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        """The name without its module, which the type's own name contains because `Tensor.type` reads that."""
        full: str = type.__dict__["__name__"].__get__(cls)
        return full.rpartition(".")[2]

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, torch.Tensor) or instance.device.type != NAME:
            return False
        return instance.dtype == cls.dtype and instance.layout == cls.layout

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        _advise_against_types()
        return torch.empty(0, dtype=cls.dtype, layout=cls.layout, device=NAME).new(*args, **kwargs)


_has_advised = False


def _advise_against_types() -> None:
    """Warns the first time, as PyTorch does for the types of torch.cuda; `torch.set_warn_always` changes that."""
    global _has_advised
    if _has_advised and not torch.is_warn_always_enabled():
        return
    _has_advised = True
    warnings.warn(
        f"The torch.{NAME}.*DtypeTensor constructors are no longer recommended. It's best to use methods such as "
        f"torch.tensor(data, dtype=*, device='{NAME}') to create tensors.",
        UserWarning,
        stacklevel=3,
    )


def tensor_type(prefix: str, dtype: torch.dtype, module: str, layout: torch.layout = torch.strided) -> TensorType:
    """The type ``module.prefixTensor``."""
    attributes = {
        "__module__": module,
        "__qualname__": f"{prefix}Tensor",
        "__doc__": f"Creates tensors of {dtype} on the current device, or on `device`, from a size or data.",
        "dtype": dtype,
        "layout": layout,
        "is_sparse": layout == torch.sparse_coo,
    }
    return TensorType(f"{module}.{prefix}Tensor", (), attributes)


class _Storage(_LegacyStorage):
    """The functions that the types of ``torch.cuda`` refuse, too: they would return memory of the host."""

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("from_buffer")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("_new_with_weak_ptr")

    @classmethod
    def _new_shared_filename(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("_new_shared_filename")


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"openreg: {name} is not available for storages of the device; create the storage on the CPU, and copy it"
    )


def _storage_type(prefix: str, dtype: torch.dtype) -> type[_Storage]:
    doc = f"Typed storage of {dtype} on the device. PyTorch advises against typed storages."
    attributes = {"__module__": f"torch.{NAME}", "__doc__": doc, "_dtype": dtype, "dtype": dtype}
    return type(f"{prefix}Storage", (_Storage,), attributes)


TYPES: dict[str, type] = {
    **{f"{prefix}Tensor": tensor_type(prefix, dtype, f"torch.{NAME}") for prefix, dtype in _DTYPES.items()},
    **{f"{prefix}Storage": _storage_type(prefix, dtype) for prefix, dtype in _STORAGE_DTYPES.items()},
}
