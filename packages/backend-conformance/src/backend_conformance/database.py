"""PyTorch's database of operators: sample inputs for nearly all of them, from `torch.testing._internal`."""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

DTYPES = (
    torch.float32,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
)
# Results have elements that nobody wrote, or depend on what the program did before.
UNDEFINED = ("empty", "resize", "jiterator", "to_sparse", "sparse")


@functools.cache
def operators() -> dict[str, Any]:
    """The entries by name; none if a package that `torch.testing._internal` imports is absent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    except ImportError:
        return {}
    entries = {f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db}
    return {name: each for name, each in sorted(entries.items()) if not any(word in name for word in UNDEFINED)}


def names() -> list[str]:
    return list(operators()) or ["all"]


def is_compared(entry: Any, dtype: torch.dtype) -> bool:
    """Whether PyTorch's own tests compare the values of this operator between devices."""
    for info in (*entry.skips, *entry.decorators):
        if getattr(info, "test_name", None) != "test_compare_cpu" or not info.active_if:
            continue
        if info.device_type in (None, "cuda") and (info.dtypes is None or dtype in info.dtypes):
            harmless = all(
                type(each).__name__ in ("toleranceOverride", "precisionOverride") for each in info.decorators
            )
            if not harmless:
                return False
    return True


def tolerance(entry: Any, dtype: torch.dtype) -> float:
    """The largest tolerance that PyTorch's own tests use for this operator."""
    found = 0.0
    for info in entry.decorators:
        for each in getattr(info, "decorators", ()):
            if type(each).__name__ == "toleranceOverride" and dtype in each.d:
                found = max(found, each.d[dtype].atol, each.d[dtype].rtol)
    return found


def samples(entry: Any, dtype: torch.dtype, gradients: bool, wanted: int, seconds: float = 0.3) -> Iterator[Any]:
    """Some samples on the CPU: the first, the last and those between, of as many as can be made in this time."""
    torch.manual_seed(0)
    made: list[Any] = []
    limit = time.perf_counter() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=gradients), 64):
            made.append(sample)
            if time.perf_counter() > limit:
                break
    chosen = sorted({round(number * (len(made) - 1) / max(wanted - 1, 1)) for number in range(wanted)})
    return (made[number] for number in chosen if 0 <= number < len(made))
