"""Each collective gives on the device what Gloo gives on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_ranks
from torch.distributed import ReduceOp

pytestmark = pytest.mark.any_device

SHAPES = [(), (0,), (1,), (6,), (12, 5), (12, 0, 3)]
MOVED = [torch.float32, torch.bool, torch.int16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
OPERATIONS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "strided": lambda x: x.repeat_interleave(2, 0)[::2] if x.dim() else x,
}

Tensors = list[torch.Tensor]


def numbers(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 3, shape, generator=generator).to(dtype)


def broadcast(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    tensor = to(make(rank))
    dist.broadcast(tensor, dist.get_world_size() - 1)
    return [tensor]


def all_gather(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    tensor = to(make(rank))
    outputs = [to(torch.zeros_like(make(rank))) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, tensor)
    return outputs


def all_gather_single(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    if not make(rank).dim():
        return []
    tensor = to(make(rank))
    output = to(torch.cat([torch.zeros_like(make(rank))] * dist.get_world_size()))
    dist.all_gather_into_tensor(output, tensor)
    return [output]


def gather(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    tensor = to(make(rank))
    outputs = [to(torch.zeros_like(make(rank))) for _ in range(dist.get_world_size())] if rank == 0 else None
    dist.gather(tensor, outputs, 0)
    return outputs or []


def scatter(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    output = to(torch.zeros_like(make(rank)))
    dist.scatter(output, [to(make(i)) for i in range(dist.get_world_size())] if rank == 0 else None, 0)
    return [output]


def all_to_all(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    size = dist.get_world_size()
    outputs = [to(torch.zeros_like(make(rank))) for _ in range(size)]
    dist.all_to_all(outputs, [to(make(rank * size + i)) for i in range(size)])
    return outputs


def all_to_all_single(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    tensor = make(rank)
    if not tensor.dim() or tensor.shape[0] % 12:
        return []
    output = to(torch.zeros_like(tensor))
    dist.all_to_all_single(output, to(tensor))
    return [output]


def ring(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
    size = dist.get_world_size()
    if size == 1:
        return []
    output = to(torch.zeros_like(make(rank)))
    sent = dist.isend(to(make(rank)), (rank + 1) % size)
    received = dist.irecv(output, (rank - 1) % size)
    for work in (sent, received):
        assert work is not None
        work.wait()
    return [output]


def reduce_with(op: Any) -> Iterator[tuple[str, Callable[..., Tensors]]]:
    def all_reduce(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
        tensor = to(make(rank))
        dist.all_reduce(tensor, op)
        return [tensor]

    def reduce(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
        tensor = to(make(rank))
        dist.reduce(tensor, 0, op)
        return [tensor] if rank == 0 else []

    def reduce_scatter(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
        output = to(torch.zeros_like(make(rank)))
        dist.reduce_scatter(output, [to(make(rank + i)) for i in range(dist.get_world_size())], op)
        return [output]

    def reduce_scatter_single(rank: int, make: Callable[[int], torch.Tensor], to: Callable[..., Any]) -> Tensors:
        tensor = torch.cat([make(rank + i).flatten() for i in range(dist.get_world_size())])
        output = to(torch.zeros_like(make(rank).flatten()))
        dist.reduce_scatter_tensor(output, to(tensor), op)
        return [output]

    for function in (all_reduce, reduce, reduce_scatter, reduce_scatter_single):
        yield f"{function.__name__} {op}", function


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)


def compare(rank: int) -> list[str]:
    """Collectives, dtypes, shapes and layouts of which the device's result is another than Gloo's."""
    moves = [broadcast, all_gather, all_gather_single, gather, scatter, all_to_all, all_to_all_single, ring]
    cases = [(function.__name__, function, dtype) for function in moves for dtype in MOVED]
    for op in OPERATIONS:
        cases += [(name, function, dtype) for name, function in reduce_with(op) for dtype in NUMBERS]
    for op in (ReduceOp.SUM, ReduceOp.AVG):
        cases += [(name, function, torch.complex64) for name, function in reduce_with(op)]
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        cases += [(name, function, dtype) for name, function in reduce_with(op) for dtype in (torch.bool, torch.int64)]
    differ = []
    for name, function, dtype in cases:
        for shape in SHAPES:
            for layout, lay in LAYOUTS.items() if dtype == torch.float32 else [("contiguous", LAYOUTS["contiguous"])]:
                # Gloo moves no elements of some dtypes: bytes are as good.
                as_bytes = function in moves and dtype not in NUMBERS
                make = lambda seed: numbers(seed, shape, dtype)  # noqa: B023, E731
                if as_bytes:
                    make = lambda seed: numbers(seed, (*shape, dtype.itemsize), torch.uint8)  # noqa: B023, E731
                expected = function(rank, make, lambda x: x)
                got = function(rank, make, lambda x: lay((x.view(dtype) if as_bytes else x).to(DEVICE)))  # noqa: B023
                for a, b in zip(got, expected, strict=True):
                    a = a.cpu()
                    b = b.view(dtype) if as_bytes and b.numel() else b.to(dtype) if as_bytes else b
                    if not torch.equal(bits(a), bits(b)):
                        differ.append(f"{name} {dtype} {shape} {layout}")
    return sorted(set(differ))


@pytest.mark.parametrize("size", [2, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 3, 4))])
def test_results_are_those_of_gloo_on_cpu_tensors(size, tmp_path):
    assert run_ranks(compare, size, tmp_path) == [[]] * size
