#!/usr/bin/env python3
"""Finds operators that are much slower in another dtype than in float32.

    python benchmarks/dtypes.py [--device openreg] [--case REGEX] [--above 4]

Times all entries of PyTorch's operator database in float32, float16, bfloat16, int8 and complex64, each with the
largest of its samples, whose sizes are 48 where PyTorch's tests have 5. Prints those that take more than `--above`
times as long as float32 for as many elements, with the reason if `REASONS` has one; if one has none, the exit status
is 1. Times are the least of several runs with one thread, so other work on the machine disturbs them little. It takes
five minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations, opinfo
from torch.utils._pytree import tree_map

DTYPES = (torch.float16, torch.bfloat16, torch.int8, torch.complex64)
SIZES = {"XS": 16, "S": 48, "M": 96, "L": 1500}
MOST_ELEMENTS = 4_000_000
SHORT = 200e-6  # seconds: what is as short as this in the other dtype is mostly the cost of a call

# Operators, and the dtypes, for which ATen's CPU kernels are slow, and why they stay so.
REASONS = {
    r"(bmm|matmul|conv_transpose1d|logcumsumexp|norm.*) complex64": "several products or functions for each element",
    r"(conj_physical|abs|angle|sgn|neg|renorm|.*norm.*) complex64": "a view or bound by memory in float32",
    r".* complex64": "complex functions are the standard library's, one element after another",
    r"nextafter (float16|bfloat16)": "the next number of another dtype is another number",
    r"flip (float16|bfloat16)": "elements of two bytes are moved one by one",
    r"(addmv|mv|conv_transpose1d) bfloat16": "products with vectors have no kernel for bfloat16",
    r".*(cosine_similarity|norm).* float16": "norms of float16 are scalar, and their dtype is an argument of the call",
    r"(.*cumprod|prod|argm..|am..) .*float16": "elements are converted one by one",
    r"div\.(trunc|floor)_rounding int8": "no processor divides vectors of integers",
    r"special\..*polynomial.* int8": "degrees beyond those of float32's samples",
    r"(logit|chalf|prod|tril|triu|erfinv|index_add) int8": "elements are converted one by one",
}


def enlarge_samples() -> None:
    """The database's samples are built from these names, in each of its modules."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(opinfo.__name__) and module is not common_methods_invocations:
            continue
        for size, value in SIZES.items():
            if isinstance(getattr(module, size, None), int):
                setattr(module, size, value)


def elements_of(sample: Any) -> int:
    inputs = sample.input if isinstance(sample.input, (list, tuple)) else [sample.input]
    return sum(each.numel() for each in inputs if isinstance(each, torch.Tensor))


def largest_sample(entry: Any, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    samples = (each for each, _ in zip(entry.sample_inputs("cpu", dtype), range(60), strict=False))
    return max((each for each in samples if elements_of(each) <= MOST_ELEMENTS), key=elements_of)


def seconds(device: str, call: Callable[[], object]) -> float:
    def timed() -> float:
        begin = time.perf_counter()
        call()
        if device != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - begin

    timed()
    return min(timed() for _ in range(5))


def measure(device: str, entry: Any, dtype: torch.dtype) -> tuple[int, float] | None:
    """The elements of the largest sample, and the seconds that the operator takes for it; None if it takes no such."""
    if dtype not in entry.dtypes:
        return None
    try:
        sample = largest_sample(entry, dtype)
        given = tree_map(
            lambda value: value.to(device) if isinstance(value, torch.Tensor) else value,
            (sample.input, sample.args, sample.kwargs),
        )
        return elements_of(sample), seconds(device, lambda: entry(given[0], *given[1], **given[2]))
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
        return None  # the sample does not exist in these sizes


def name_of(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def reason_of(name: str, dtype: str) -> str | None:
    found = (reason for pattern, reason in REASONS.items() if re.fullmatch(pattern, f"{name} {dtype}"))
    return next(found, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="openreg")
    parser.add_argument("--case", default="", metavar="REGEX", help="only operators whose name matches")
    parser.add_argument("--above", type=float, default=4.0, help="ratio from which an operator is printed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    enlarge_samples()
    unexplained = 0
    for entry in common_methods_invocations.op_db:
        name = name_of(entry)
        if not re.search(options.case, name) or (baseline := measure(options.device, entry, torch.float32)) is None:
            continue
        for dtype in DTYPES:
            other = measure(options.device, entry, dtype)
            if other is None or other[0] != baseline[0] or other[1] < SHORT or other[1] < options.above * baseline[1]:
                continue
            dtype_name = str(dtype).removeprefix("torch.")
            reason = reason_of(name, dtype_name)
            unexplained += reason is None
            times = f"{other[1] * 1e6:9.0f} us against {baseline[1] * 1e6:7.0f}"
            ratio = other[1] / baseline[1]
            print(f"{ratio:6.1f}  {dtype_name:9} {name:45} {times}  {reason or 'NO REASON'}", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
