"""What random programs are made of: operators whose results are exact.

All elements are integers of small magnitude, also those of floating-point tensors, so that every kernel gives the same
bits in every order of summation: what differs from the CPU is a defect, never a rounding.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

MODULUS = 251  # a product of two, summed over 256 elements, is exact in float32
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)

Tensors = Sequence[torch.Tensor]
Numbers = tuple[Any, ...]


class Operation(NamedTuple):
    """`run` gets as many tensors as `inputs` says, and what `choose` has chosen for them. With `writes`, it changes the
    first of them in place and its result is that one."""

    name: str
    inputs: int
    run: Callable[..., torch.Tensor]
    choose: Callable[[random.Random, Tensors], Numbers] = lambda rng, tensors: ()
    writes: bool = False
    wraps: bool = True  # results may be large


def dim_of(rng: random.Random, tensors: Tensors) -> Numbers:
    """Sometimes one that the tensor does not have."""
    return (rng.randrange(max(1, tensors[0].dim()) + (rng.random() < 0.05)),)


def two_dims(rng: random.Random, tensors: Tensors) -> Numbers:
    return dim_of(rng, tensors) + dim_of(rng, tensors)


def part(rng: random.Random, tensors: Tensors) -> Numbers:
    """A dimension, a begin and a length."""
    (dim,) = dim_of(rng, tensors)
    size = tensors[0].shape[dim] if dim < tensors[0].dim() else 1
    begin = rng.randrange(max(1, size))
    return dim, begin, rng.randrange(1, max(2, size - begin + 1))


def nothing(rng: random.Random, tensors: Tensors) -> Numbers:
    """A dimension, and where in it a part without elements begins: also at the end."""
    (dim,) = dim_of(rng, tensors)
    return dim, rng.randrange((tensors[0].shape[dim] if dim < tensors[0].dim() else 1) + 1)


def few(rng: random.Random, tensors: Tensors) -> Numbers:
    return (rng.randrange(1, 5),)


def small_number(rng: random.Random, tensors: Tensors) -> Numbers:
    return (rng.randrange(-9, 10),)


def indices(rng: random.Random, tensors: Tensors) -> Numbers:
    """A dimension, and indices in it, as a list."""
    (dim,) = dim_of(rng, tensors)
    size = tensors[0].shape[dim] if dim < tensors[0].dim() else 1
    return dim, tuple(rng.randrange(max(1, size)) for _ in range(rng.randrange(1, 8)))


def some_dtype(rng: random.Random, tensors: Tensors) -> Numbers:
    return (rng.choice(DTYPES),)


def index_tensor(x: torch.Tensor, numbers: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(numbers, device=x.device)


def as_matrix(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1] if x.dim() else 1)[:, :256]


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    left = as_matrix(a)
    right = as_matrix(b.to(a.dtype))[:64]
    if right.shape[1] < left.shape[1]:
        right = torch.ones_like(left[:64])
    return left @ right[:, : left.shape[1]].mT


def gradient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = as_matrix(a).detach().double().requires_grad_()
    y = as_matrix(b).detach().double()[:8]
    width = min(x.shape[1], y.shape[1])
    hidden = torch.relu(x[:, :width] @ y[:, :width].mT)
    (hidden * 3 + hidden.sum(0)).sum().backward()
    assert x.grad is not None
    return x.grad


def index_add(x: torch.Tensor, dim: int, numbers: tuple[int, ...]) -> torch.Tensor:
    index = index_tensor(x, numbers)
    return x.index_add_(dim, index, x.index_select(dim, index).clone())


OPERATIONS = (
    Operation("add", 2, torch.add),
    Operation("sub", 2, torch.sub),
    Operation("mul", 2, torch.mul),
    Operation("maximum", 2, torch.maximum, wraps=False),
    Operation("neg", 1, torch.neg),
    Operation("abs", 1, torch.abs),
    Operation("square", 1, torch.square),
    Operation("scale", 1, lambda x, n: x * n, small_number),
    Operation("clamp", 1, lambda x, n: x.clamp(min=n), small_number),
    Operation("where", 3, lambda a, b, c: torch.where(a > b, b, c.to(b.dtype)), wraps=False),
    Operation("sum", 1, lambda x, dim: x.sum(dim, keepdim=True), dim_of),
    Operation("amax", 1, lambda x, dim: x.amax(dim), dim_of, wraps=False),
    Operation("cumsum", 1, lambda x, dim: x.cumsum(dim), dim_of),
    Operation("sort", 1, lambda x, dim: x.sort(dim)[0], dim_of, wraps=False),
    Operation("argmax", 1, lambda x, dim: x.argmax(dim), dim_of),
    Operation("kthvalue", 1, lambda x, dim: x.kthvalue(1, dim)[0], dim_of, wraps=False),
    Operation("mode", 1, lambda x, dim: x.mode(dim)[0], dim_of, wraps=False),
    Operation("cat", 2, lambda a, b: torch.cat([as_matrix(a)[:, :1], as_matrix(b)[:, :1].to(a.dtype)]), wraps=False),
    Operation("product", 2, product),
    Operation("einsum", 1, lambda x: torch.einsum("ij,kj->ik", as_matrix(x)[:32], as_matrix(x)[:16])),
    Operation("gradient", 2, gradient),
    Operation("index_select", 1, lambda x, dim, i: x.index_select(dim, index_tensor(x, i)), indices, wraps=False),
    Operation("to_dtype", 1, lambda x, dtype: x.to(dtype), some_dtype, wraps=False),
    Operation("clone", 1, torch.clone, wraps=False),
    # Refused by the CPU's kernel
    Operation("product of bools", 1, lambda x: (as_matrix(x)[:4, :4] > 0) @ (as_matrix(x)[:4, :4] > 0).mT),
    # Views
    Operation("transpose", 1, lambda x, a, b: x.transpose(a, b), two_dims, wraps=False),
    Operation("narrow", 1, lambda x, dim, begin, length: x.narrow(dim, begin, length), part, wraps=False),
    Operation("narrow to nothing", 1, lambda x, dim, begin: x.narrow(dim, begin, 0), nothing, wraps=False),
    Operation("expand", 1, lambda x, n: x.unsqueeze(0).expand(n, *x.shape), few, wraps=False),
    Operation("expand last", 1, lambda x, n: x.unsqueeze(-1).expand(*x.shape, n), few, wraps=False),
    Operation("windows", 1, lambda x, size: x.flatten().unfold(0, size, 1), few, wraps=False),
    Operation("unsqueeze", 1, lambda x, dim: x.unsqueeze(dim), dim_of, wraps=False),
    Operation("flatten", 1, torch.flatten, wraps=False),
    Operation("contiguous", 1, lambda x: x.contiguous(), wraps=False),
    # In place
    Operation("add_", 2, lambda a, b: a.add_(b), writes=True),
    Operation("sub_scaled_", 2, lambda a, b, n: a.sub_(b, alpha=n), small_number, writes=True),
    Operation("mul_", 1, lambda x, n: x.mul_(n), small_number, writes=True),
    Operation("copy_", 2, lambda a, b: a.copy_(b), writes=True),
    Operation("fill_", 1, lambda x, n: x.fill_(n), small_number, writes=True),
    Operation("masked_fill_", 1, lambda x, n: x.masked_fill_(x > n, n), small_number, writes=True),
    Operation("part_", 1, lambda x, dim, begin, length: x.narrow(dim, begin, length).add_(1), part, writes=True),
    Operation("index_add_", 1, index_add, indices, writes=True),
    Operation("sub_sum_", 1, lambda x: x.sub_(x.sum()), writes=True),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def apply(operation: Operation, tensors: Tensors, numbers: Numbers) -> torch.Tensor:
    result = operation.run(*tensors, *numbers)
    if not operation.wraps:
        return result
    return result.remainder_(MODULUS) if operation.writes else torch.remainder(result, MODULUS)
