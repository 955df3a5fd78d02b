"""Every dtype through what any dtype can be asked: copies, fills, views, indexing, comparing, some arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from as_cpu import assert_as_cpu

pytestmark = pytest.mark.any_device

DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
]

INDEX = torch.tensor([2, 0, 2])
MASK = torch.tensor([True, False, True])
GRID = torch.tensor([[0, 1, 0, 1], [2, 0, 1, 0]])

# Functions of two tensors of 3 by 4.
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "clone": lambda x, y: x.clone(),
    "clone-transposed": lambda x, y: x.t().clone(memory_format=torch.contiguous_format),
    "contiguous-steps": lambda x, y: x[:, ::2].contiguous(),
    "copy_": lambda x, y: x.copy_(y),
    "copy_-transposed": lambda x, y: x.t().copy_(y.t()),
    "copy_-broadcast": lambda x, y: x.copy_(y[0]),
    "fill_": lambda x, y: x.fill_(1),
    "fill_-tensor": lambda x, y: x.fill_(y[0, 1]),
    "fill-steps": lambda x, y: x[:, 1::2].fill_(1),
    "zero_": lambda x, y: x.zero_(),
    "full_like": lambda x, y: torch.full_like(x, 1),
    "ones_like": lambda x, y: torch.ones_like(x),
    "zeros_like": lambda x, y: torch.zeros_like(x),
    "new_tensor": lambda x, y: x.new_tensor([1, 0]),
    "arange": lambda x, y: torch.arange(5, dtype=x.dtype, device=x.device),
    "linspace": lambda x, y: torch.linspace(0, 1, 3, dtype=x.dtype, device=x.device),
    "eye": lambda x, y: torch.eye(3, dtype=x.dtype, device=x.device),
    "item": lambda x, y: x[0, 1].item(),
    "tolist": lambda x, y: x.tolist(),
    "repr": lambda x, y: repr(x.cpu()),
    "cat": lambda x, y: torch.cat([x, y]),
    "cat-columns": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "split": lambda x, y: x.split(2),
    "flip": lambda x, y: x.flip(0),
    "roll": lambda x, y: x.roll(1, 1),
    "rot90": lambda x, y: x.rot90(),
    "repeat": lambda x, y: x.repeat(2, 1),
    "tril": lambda x, y: x.tril(),
    "diag": lambda x, y: torch.diag(x),
    "index": lambda x, y: x[INDEX.to(x.device)],
    "index-mask": lambda x, y: x[MASK.to(x.device)],
    "index_put_": lambda x, y: x.index_put_((INDEX.to(x.device)[:2],), y[:2]),
    "index_put_-accumulated": lambda x, y: x.index_put_((INDEX.to(x.device)[:2],), y[:2], accumulate=True),
    "set-scalar": lambda x, y: x.__setitem__((0, 1), 1) or x,
    "index_select": lambda x, y: x.index_select(0, INDEX.to(x.device)),
    "index_copy_": lambda x, y: x.index_copy_(0, INDEX.to(x.device)[:2], y[:2]),
    "index_fill_": lambda x, y: x.index_fill_(0, INDEX.to(x.device), 1),
    "index_add_": lambda x, y: x.index_add_(0, INDEX.to(x.device)[:2], y[:2]),
    "gather": lambda x, y: x.gather(0, GRID.to(x.device)),
    "scatter_": lambda x, y: x.scatter_(0, GRID.to(x.device)[:1], y),
    "scatter_-number": lambda x, y: x.scatter_(0, GRID.to(x.device), 1),
    "scatter_add_": lambda x, y: x.scatter_add_(0, GRID.to(x.device)[:1], y),
    "take": lambda x, y: x.take(INDEX.to(x.device)),
    "where": lambda x, y: torch.where(MASK.to(x.device)[:, None], x, y),
    "where-number": lambda x, y: torch.where(MASK.to(x.device)[:, None], x, 1),
    "masked_fill": lambda x, y: x.masked_fill(MASK.to(x.device)[:, None], 1),
    "masked_select": lambda x, y: x.masked_select(MASK.to(x.device)[:, None]),
    "masked_scatter": lambda x, y: x.masked_scatter(MASK.to(x.device)[:, None], y),
    "nonzero": lambda x, y: x.nonzero(),
    "count_nonzero": lambda x, y: x.count_nonzero(),
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "ge-number": lambda x, y: x >= 1,
    "equal": lambda x, y: torch.equal(x, x.clone()),
    "allclose": lambda x, y: torch.allclose(x, x.clone()),
    "isnan": lambda x, y: x.isnan(),
    "isfinite": lambda x, y: x.isfinite(),
    "add": lambda x, y: x + y,
    "add-number": lambda x, y: x + 1,
    "add_": lambda x, y: x.add_(y),
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y + 1),
    "floor_divide": lambda x, y: x // 2,
    "remainder": lambda x, y: x % 2,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "pow": lambda x, y: x**2,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_not": lambda x, y: ~x,
    "shift": lambda x, y: x << 1,
    "logical_and": lambda x, y: x.logical_and(y),
    "sqrt": lambda x, y: x.sqrt(),
    "exp": lambda x, y: x.exp(),
    "maximum": lambda x, y: torch.maximum(x, y),
    "clamp": lambda x, y: x.clamp(0, 1),
    "sum": lambda x, y: x.sum(),
    "sum-rows": lambda x, y: x.sum(0),
    "prod": lambda x, y: x.prod(),
    "mean": lambda x, y: x.mean(),
    "max": lambda x, y: x.max(),
    "argmax-rows": lambda x, y: x.argmax(1),
    "any": lambda x, y: x.any(),
    "all-rows": lambda x, y: x.all(0),
    "cumsum": lambda x, y: x.cumsum(0),
    "sort": lambda x, y: x.sort(1, stable=True),
    "topk": lambda x, y: x.topk(1),
    "unique": lambda x, y: x.unique(),
    "isin": lambda x, y: torch.isin(x, y),
    "matmul": lambda x, y: x @ y.t(),
    "dot": lambda x, y: x[0].dot(y[0]),
    "view-bits": lambda x, y: x.view(torch.uint8),
    "real": lambda x, y: x.real,
    "conj": lambda x, y: x.conj().clone(),
    "foreach_add": lambda x, y: torch._foreach_add([x, y], 1),
    "foreach_copy_": lambda x, y: torch._foreach_copy_([x], [y]) or x,
    "stack-overlap": lambda x, y: torch.stack([x[0].expand(3, 4), y]),
    "pad": lambda x, y: torch.nn.functional.pad(x, (1, 1)),
    "unfold": lambda x, y: x.unfold(1, 2, 1).clone(),
    "bincount": lambda x, y: x.flatten().bincount(),
    "softmax": lambda x, y: x.softmax(0),
}


def numbers(dtype: torch.dtype, offset: int) -> torch.Tensor:
    """Twelve of them, exact in every dtype and of both signs where it has signs: powers of two, zero, one."""
    choice = torch.tensor([1, 2, 0, 4, 1, 0, 2, 8, 4, 1, 2, 1], dtype=torch.float64).roll(offset)
    if dtype == torch.float8_e8m0fnu:
        choice = choice.clamp(min=0.5)
    elif dtype.is_signed:
        choice = choice * torch.tensor([1, -1, 1, 1]).repeat(3)
    return choice.reshape(3, 4).to(dtype)


# What a dtype is at least asked for with success: the CPU has so few operators for some.
ALWAYS = {
    "clone",
    "clone-transposed",
    "contiguous-steps",
    "copy_",
    "copy_-transposed",
    "cat",
    "stack",
    "item",
    "view-bits",
}

# What CUDA computes, and so the device does, and the CPU refuses.
ONLY_ON_CUDA = {
    torch.bool: {"abs"},
    torch.complex32: {"cumsum", "div", "exp", "pow", "prod", "sqrt", "sum", "sum-rows"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_every_dtype_answers_as_on_the_cpu(dtype):
    unequal, answered = {}, set()
    for name, function in FUNCTIONS.items():
        try:
            if assert_as_cpu(function, numbers(dtype, 0), numbers(dtype, 5)):
                answered.add(name)
        except AssertionError as error:
            unequal[name] = " ".join(str(error).split())[:300]
    assert unequal.keys() == ONLY_ON_CUDA.get(dtype, set()), unequal
    assert answered >= ALWAYS


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("source", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_every_dtype_becomes_every_other_as_on_the_cpu(source):
    unequal = {}
    for target in DTYPES:
        for name, x in {"dense": numbers(source, 0), "steps": numbers(source, 3)[:, ::2]}.items():
            conversions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
                "to": lambda x, target=target: x.to(target),
                "copy_": lambda x, target=target: torch.zeros(x.shape, device=x.device).to(target).copy_(x),
            }
            for way, convert in conversions.items():
                try:
                    assert_as_cpu(convert, x)
                except AssertionError as error:
                    unequal[str(target), name, way] = " ".join(str(error).split())[:300]
    assert unequal == {}
