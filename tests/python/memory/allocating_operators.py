"""Operators of which CUDA's kernels allocate more than their results, and how much: bytes of the requests.

A case is a function that makes what an operator needs and returns the call, and the expected extra peak as blocks, each
of which the allocator rounds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

BLOCK = 512
KIB, MIB = 1 << 10, 1 << 20

BF16, F32, I64 = torch.bfloat16, torch.float32, torch.int64


def rounded(*sizes: int) -> int:
    return sum(-(-size // BLOCK) * BLOCK for size in sizes)


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


Case = tuple[Callable[[], Callable[[], Any]], int]
CASES: dict[str, Case] = {}


def case(expected: int) -> Callable[[Callable[[], Callable[[], Any]]], None]:
    def add(make: Callable[[], Callable[[], Any]]) -> None:
        CASES[make.__name__] = (make, expected)

    return add


# A sum over rows: 4096 outputs in vectors of 4; blocks of 32 x 4 threads, 32 of them beside each other. To fill 108
# multiprocessors of 2048 threads, 54 blocks share an output.
@case(rounded(4 * 4096 * 54 * 32 * 4, 4 * 32))
def sum_of_rows() -> Callable[[], Any]:
    x = torch.empty(16384, 4096, dtype=BF16)
    out = torch.empty(4096, dtype=BF16)
    return lambda: torch.sum(x, 0, out=out)


# One output, of 512 blocks of 512 threads, so that none adds up more than 256 vectors for each thread.
@case(rounded(4 * 512, 4))
def sum_of_all() -> Callable[[], Any]:
    x = torch.empty(1 << 26)
    out = torch.empty(())
    return lambda: torch.sum(x, dim=[0], out=out)


@case(0)
def sum_along_short_rows() -> Callable[[], Any]:
    x = torch.empty(65536, 128)
    out = torch.empty(65536)
    return lambda: torch.sum(x, 1, out=out)


@case(rounded(8 << 20))
def sum_of_int32_is_converted() -> Callable[[], Any]:
    x = torch.empty(1024, 1024, dtype=torch.int32)
    out = torch.empty(1024, dtype=I64)
    return lambda: torch.sum(x, 1, out=out)


@case(0)
def sort_of_short_rows() -> Callable[[], Any]:
    x = torch.empty(64, 4096)
    values, indices = torch.empty_like(x), torch.empty(64, 4096, dtype=I64)
    return lambda: torch.sort(x, 1, out=(values, indices))


@case(rounded(8 * 32000, 4 * 32000, 8 * 32000))
def sort_of_a_long_row() -> Callable[[], Any]:
    x = torch.empty(32000)
    values, indices = torch.empty_like(x), torch.empty(32000, dtype=I64)
    return lambda: torch.sort(x, 0, out=(values, indices))


@case(rounded(4 * 8 * 64, 4 * 8 * 64))
def group_norm_scales() -> Callable[[], Any]:
    x, weight = torch.empty(8, 64, 32, 32, dtype=BF16), torch.empty(64, dtype=BF16)
    return lambda: torch.native_group_norm(x, weight, weight, 8, 64, 1024, 8, 1e-5)


@case(0)
def layer_norm_backward_of_long_rows() -> Callable[[], Any]:
    x, weight = torch.empty(4096, 1024), torch.empty(1024)
    y, mean, rstd = torch.native_layer_norm(x, [1024], weight, weight, 1e-5)
    return lambda: torch.ops.aten.native_layer_norm_backward(y, x, [1024], mean, rstd, weight, weight, [True] * 3)


# 131072 rows in blocks of 32, whose sums are added up: 32 blocks of 16 x 8 threads with vectors of 4 share an output.
@case(rounded(4 * 4096 * 96, 4 * 4096 * 96, 4 * 96, 4 * 96 * 32 * 16 * 4, 2 * 4))
def layer_norm_backward_of_many_short_rows() -> Callable[[], Any]:
    x, weight = torch.empty(131072, 96), torch.empty(96)
    y, mean, rstd = torch.native_layer_norm(x, [96], weight, weight, 1e-5)
    return lambda: torch.ops.aten.native_layer_norm_backward(y, x, [96], mean, rstd, weight, weight, [True] * 3)


_TOKENS, _ROWS, _WIDTH = 8192, 32000, 256


@case(
    rounded(
        *[8 * _TOKENS] * 2,  # sorted
        8 * _TOKENS,  # offsets
        8,
        *[8 * _TOKENS] * 2,  # parts of segments
        8,
        8 * (_TOKENS // 10 + _TOKENS),
        4 * (_TOKENS // 10 + _TOKENS) * _WIDTH,
    )
)
def embedding_backward() -> Callable[[], Any]:
    grad, indices = torch.empty(_TOKENS, _WIDTH, dtype=BF16), torch.zeros(_TOKENS, dtype=I64)
    return lambda: torch.ops.aten.embedding_dense_backward(grad, indices, _ROWS, -1, False)


@case(0)
def embedding_backward_of_few_indices() -> Callable[[], Any]:
    grad, indices = torch.empty(3072, _WIDTH, dtype=BF16), torch.zeros(3072, dtype=I64)
    return lambda: torch.ops.aten.embedding_dense_backward(grad, indices, _ROWS, -1, False)


@case(rounded(*[8 * 8192] * 3, *[8 * 8192] * 3))
def index_put_that_accumulates() -> Callable[[], Any]:
    x, indices, values = torch.empty(32000, 64), torch.zeros(8192, dtype=I64), torch.empty(8192, 64)
    return lambda: x.index_put_((indices,), values, accumulate=True)


# Keys have 36 bits. Our kernel works in two arrays of them.
@case(rounded(2 * 8 * 100000, 3 * 8 * 100000))
def permutation() -> Callable[[], Any]:
    out = torch.empty(100000, dtype=I64)
    return lambda: torch.randperm(100000, out=out)


def extra_peak(call: Callable[[], Any], module: Any) -> int:
    """What is allocated beside the results, which the caller keeps."""
    call()
    gc.collect()
    module.empty_cache()
    before = module.memory_allocated()
    module.reset_peak_memory_stats()
    kept = call()
    peak = module.max_memory_allocated() - before
    results = module.memory_allocated() - before
    del kept
    return int(peak - results)


def measure(device: str) -> dict[str, int]:
    module = getattr(torch, device)
    found = {}
    for name, (make, _) in CASES.items():
        with torch.device(device):
            found[name] = extra_peak(make(), module)
    return found
