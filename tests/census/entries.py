"""The entries of PyTorch's operator database (op_db), and what of them the census does."""

from __future__ import annotations

import re
import warnings
import zlib
from typing import Any

import torch

from dtypes import only_on_cuda
from expected import EXCEPTED
from outcome import UNDEFINED
from result import Result
from samples import VARIANTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_cuda

    # CUDA's dtypes, in the lists of the database, are those of the newest GPU.
    for capability in filter(re.compile(r"SM\d+OrLater").fullmatch, dir(common_cuda)):
        setattr(common_cuda, capability, True)
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

# The checks for which one dtype is enough take the first of these that an entry supports.
PREFERRED = [torch.float32, torch.int64, torch.complex64, torch.bool]
# With these, elementwise operators and reductions are captured, and repeated.
KEPT = [*PREFERRED, torch.float64, torch.float16, torch.bfloat16]


# What is kept of one call for the next.
IN_TURN = ("graphs", "repeats")


def entry_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtypes_of(op: Any) -> list[torch.dtype]:
    return sorted(op.supported_dtypes("cpu"), key=str)


def first(op: Any, choices: list[torch.dtype]) -> list[torch.dtype]:
    return [dtype for dtype in choices if dtype in op.supported_dtypes("cpu")][:1]


def cases(op: Any) -> list[Result]:
    """All that the census does with an entry, as results yet to be filled."""
    wanted = [("values", dtype) for dtype in dtypes_of(op)]
    for name, (_, groups) in VARIANTS.items():
        wanted += [(name, dtype) for group in groups for dtype in first(op, group)]
    if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)):
        wanted += [("shapes", dtype) for dtype in first(op, PREFERRED)]
    if op.supports_out:
        wanted += [("out", dtype) for dtype in first(op, PREFERRED)]
    if op.error_inputs_func is not None:
        wanted += [("errors", dtype) for dtype in first(op, PREFERRED)]
    kept = KEPT if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)) else first(op, PREFERRED)
    wanted += [(check, dtype) for check in IN_TURN for dtype in kept if dtype in op.supported_dtypes("cpu")]
    wanted += [("dtypes", dtype) for dtype in only_on_cuda(op)]
    name = entry_name(op)
    return [Result(name, check, dtype_name(dtype)) for check, dtype in wanted]


def census(checks: set[str] | None = None, dtypes: set[str] | None = None) -> list[tuple[Any, list[Result]]]:
    """Each entry with its cases, of these checks and dtypes if any are given."""

    def chosen(case: Result) -> bool:
        return (checks is None or case.check in checks) and (dtypes is None or case.dtype in dtypes)

    entries = [(op, [case for case in cases(op) if chosen(case)]) for op in op_db]
    return [(op, todo) for op, todo in entries if todo]


def in_slice(op: Any) -> list[Result]:
    """What every run of the tests can afford: of one entry in eight, one dtype, and one of the other checks.

    All come from a hash of its name and nothing else, so that entries are not selected by whether they pass.
    """
    quotient, remainder = divmod(zlib.crc32(entry_name(op).encode()), 8)
    if remainder:
        return []
    values = [case for case in cases(op) if case.check == "values"]
    others = [case for case in cases(op) if case.check not in ("values", "dtypes", *IN_TURN)]
    another = quotient // len(values)
    return [values[quotient % len(values)], *([others[another % len(others)]] if others else [])]


def census_slice() -> list[tuple[Any, list[Result]]]:
    return [(op, todo) for op in op_db if (todo := in_slice(op))]


def slice_in_turn(check: str) -> list[tuple[Any, list[Result]]]:
    """Of one entry in sixteen, by a hash of its name, the first of its cases of such a check."""
    chosen = [op for op in op_db if zlib.crc32(entry_name(op).encode()) // 4 % 16 == 0]
    entries = [(op, [case for case in cases(op) if case.check == check][:1]) for op in chosen]
    return [(op, todo) for op, todo in entries if todo]


def is_swept(op: Any, in_slice: bool, one_in: int) -> bool:
    """Whether a sweep covers an entry; `in_slice`: only one in so many, by a hash of its name."""
    name = entry_name(op)
    return name not in EXCEPTED and not (in_slice and zlib.crc32(name.encode()) % one_in)


def excepted(case: Result) -> bool:
    """Whether the census cannot judge it; then that is the result."""
    reason = EXCEPTED.get(case.name) or EXCEPTED.get(f"{case.name}, {case.check}")
    if reason is not None:
        case.status, case.details = "excepted", [reason]
    return reason is not None


def swept(check: str, one_in: int, in_slice: bool, pattern: re.Pattern[str]) -> list[tuple[Any, list[Result]]]:
    """The entries that match and whose results are defined, each in the usual dtype; in a slice, one in so many."""
    chosen = []
    for op, _ in census():
        name = entry_name(op)
        if not is_swept(op, in_slice, one_in) or UNDEFINED.match(name) or not pattern.search(name):
            continue
        chosen.append((op, [Result(name, check, dtype_name(dtype)) for dtype in first(op, PREFERRED)]))
    return chosen
