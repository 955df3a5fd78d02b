"""What collectives accept and refuse: all that NCCL accepts, in every form; refusals raise at the call, and leave the
group usable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_ranks
from torch.distributed import ReduceOp

INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
# The last ones are refused by NCCL, which has no names for them.
MOVED = [torch.bool, *INTEGERS, *FLOATS, *FLOATS8, torch.complex64, torch.complex128, torch.int16, torch.uint16]

Result = tuple[list[torch.Tensor], list[Any]]  # what a call wrote, and what was expected
Case = Callable[[int, int], Result]


def full(shape: int | tuple[int, ...], value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((shape,) if isinstance(shape, int) else shape, value, dtype=dtype, device=DEVICE)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


def transposed(*shape: int, value: float = 0.0) -> torch.Tensor:
    """Of this shape, and not contiguous."""
    return full(tuple(reversed(shape)), value).permute(*reversed(range(len(shape))))


# --- all_to_all: rank r sends size_of(r, s) elements of the value 10 r + s to rank s ---


def exchange(
    size_of: Callable[[int, int], tuple[int, ...]],
    make: Callable[..., torch.Tensor] = full,
    dtype: torch.dtype = torch.float32,
) -> Case:
    def case(rank: int, size: int) -> Result:
        inputs = [make(size_of(rank, i), (10 * rank + i) % 2, dtype) for i in range(size)]
        outputs = [make(size_of(i, rank), 0, dtype) for i in range(size)]
        dist.all_to_all(outputs, inputs)
        return outputs, [torch.full(size_of(i, rank), (10 * i + rank) % 2, dtype=dtype) for i in range(size)]

    return case


def strided(shape: tuple[int, ...], value: float, dtype: torch.dtype) -> torch.Tensor:
    return full((*shape, 2), value, dtype)[..., 0]


def exchange_views(rank: int, size: int) -> Result:
    output = zeros(size * (rank + 1))
    inputs = torch.cat([full(i + 1, rank) for i in range(size)]).split([i + 1 for i in range(size)])
    dist.all_to_all(list(output.split(rank + 1)), list(inputs))
    return [output], [torch.arange(float(size)).repeat_interleave(rank + 1)]


def exchange_shapes(rank: int, size: int) -> Result:
    outputs = [zeros(3, 2) for _ in range(size)]
    dist.all_to_all(outputs, [full((2, 3), rank) for _ in range(size)])
    return outputs, [torch.full((3, 2), float(i)) for i in range(size)]


def exchange_single(
    rows: Callable[[int, int], int],
    lay: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    with_sizes: Callable[[int, str], bool] = lambda rank, side: True,
) -> Case:
    def case(rank: int, size: int) -> Result:
        to, come = [rows(rank, i) for i in range(size)], [rows(i, rank) for i in range(size)]
        sent = torch.cat([torch.full((rows(rank, i), 2), 10.0 * rank + i) for i in range(size)])
        output = lay(zeros(sum(come), 2))
        dist.all_to_all_single(
            output,
            lay(sent.to(DEVICE)),
            come if with_sizes(rank, "output") else None,
            to if with_sizes(rank, "input") else None,
        )
        return [output], [torch.cat([torch.full((rows(i, rank), 2), 10.0 * i + rank) for i in range(size)])]

    return case


def exchange_elements(rank: int, size: int) -> Result:
    """Without sizes NCCL divides the elements, not the rows."""
    output = zeros(1, size)
    dist.all_to_all_single(output, torch.arange(float(size)).to(DEVICE) + 10 * rank)
    return [output], [10 * torch.arange(float(size))[None] + rank]


def exchange_alone(rank: int, size: int) -> Result:
    output = zeros()
    dist.all_to_all_single(output, full((), rank + 1), group=alone(rank))
    return [output], [torch.tensor(rank + 1.0)]


# --- all_gather ---


def gather_all(
    shape_of: Callable[[int], tuple[int, ...]],
    make: Callable[..., torch.Tensor] = full,
    dtype: torch.dtype = torch.float32,
) -> Case:
    def case(rank: int, size: int) -> Result:
        outputs = [make(shape_of(i), 0, dtype) for i in range(size)]
        dist.all_gather(outputs, make(shape_of(rank), rank % 2, dtype))
        return outputs, [torch.full(shape_of(i), i % 2, dtype=dtype) for i in range(size)]

    return case


def gather_all_in_place(rank: int, size: int) -> Result:
    outputs = [full(3, rank) for _ in range(size)]
    dist.all_gather(outputs, outputs[rank])
    return outputs, [torch.full((3,), float(i)) for i in range(size)]


def gather_all_shapes(rank: int, size: int) -> Result:
    outputs = [zeros(3, 2) for _ in range(size)]
    dist.all_gather(outputs, full((2, 3), rank))
    return outputs, [torch.full((3, 2), float(i)) for i in range(size)]


def gather_all_unequal_in_place(rank: int, size: int) -> Result:
    outputs = [full(i + 1, rank) for i in range(size)]
    dist.all_gather(outputs, outputs[rank])
    return outputs, [torch.full((i + 1,), float(i)) for i in range(size)]


def gather_into(shape: tuple[int, ...], result: Callable[[int], tuple[int, ...]], lay: Any = lambda x: x) -> Case:
    def case(rank: int, size: int) -> Result:
        output = lay(zeros(*result(size)))
        dist.all_gather_into_tensor(output, lay(full(shape, rank)))
        expected = torch.cat([torch.full(shape, float(i)).flatten() for i in range(size)])
        return [output], [expected.view(result(size))]

    return case


def gather_into_in_place(rank: int, size: int) -> Result:
    output = full((size, 3), rank)
    dist.all_gather_into_tensor(output, output[rank])
    return [output], [torch.arange(float(size))[:, None].expand(size, 3)]


# --- reduce_scatter ---


def reduce_scattered(shape_of: Callable[[int], tuple[int, ...]], make: Callable[..., torch.Tensor] = full) -> Case:
    def case(rank: int, size: int) -> Result:
        output = make(shape_of(rank), 0, torch.float32)
        dist.reduce_scatter(output, [make(shape_of(i), rank + i, torch.float32) for i in range(size)])
        return [output], [torch.full(shape_of(rank), sum(range(size)) + float(size * rank))]

    return case


def reduce_scatter_in_place(rank: int, size: int) -> Result:
    inputs = [full(3, rank + i) for i in range(size)]
    dist.reduce_scatter(inputs[rank], inputs)
    return [inputs[rank]], [torch.full((3,), sum(range(size)) + float(size * rank))]


def reduce_scatter_into(shape: tuple[int, ...], result: Callable[[int], tuple[int, ...]], lay: Any) -> Case:
    def case(rank: int, size: int) -> Result:
        output = lay(zeros(*shape))
        whole = torch.cat([torch.full(shape, float(rank + i)).flatten() for i in range(size)]).view(result(size))
        dist.reduce_scatter_tensor(output, lay(whole.to(DEVICE)))
        return [output], [torch.full(shape, sum(range(size)) + float(size * rank))]

    return case


def reduce_scatter_into_in_place(rank: int, size: int) -> Result:
    whole = torch.stack([full(3, rank + i) for i in range(size)])
    dist.reduce_scatter_tensor(whole[rank], whole)
    return [whole[rank]], [torch.full((3,), sum(range(size)) + float(size * rank))]


# --- Others ---


def spread(make: Callable[[int], torch.Tensor]) -> Case:
    """Broadcast from the last rank."""

    def case(rank: int, size: int) -> Result:
        tensor = make(rank)
        dist.broadcast(tensor, size - 1)
        return [tensor], [make(size - 1).cpu()]

    return case


def spread_expanded(rank: int, size: int) -> Result:
    tensor = full(1, 7).expand(3) if rank == 0 else zeros(3)
    dist.broadcast(tensor, 0)
    return [tensor], [torch.full((3,), 7.0)]


def collect(rank: int, size: int) -> Result:
    outputs = [transposed(2, 3) for _ in range(size)] if rank == 0 else None
    dist.gather(full((2, 3), rank), outputs, 0)
    return outputs or [], [torch.full((2, 3), float(i)) for i in range(size)] if rank == 0 else []


def collect_in_place(rank: int, size: int) -> Result:
    outputs = [full(2, rank) for _ in range(size)]
    last = size - 1
    dist.gather(outputs[rank], outputs if rank == last else None, last)
    return (outputs, [torch.full((2,), float(i)) for i in range(size)]) if rank == last else ([], [])


def distribute(rank: int, size: int) -> Result:
    output = transposed(2, 3)
    dist.scatter(output, [full((2, 3), i) for i in range(size)] if rank == 0 else None, 0)
    return [output], [torch.full((2, 3), float(rank))]


def distribute_in_place(rank: int, size: int) -> Result:
    inputs = [full(2, i + 5) for i in range(size)]
    dist.scatter(inputs[rank], inputs if rank == 0 else None, 0)
    return [inputs[rank]], [torch.full((2,), rank + 5.0)]


def negative_view(rank: int, size: int) -> Result:
    """A tensor whose memory has the opposite sign, and is contiguous."""
    tensor = torch.tensor([complex(1, rank + 1)], device=DEVICE).conj().imag
    assert tensor.is_neg() and tensor.is_contiguous()
    outputs = [zeros(1) for _ in range(size)]
    dist.all_gather(outputs, tensor)
    dist.distributed_c10d._get_default_group()._get_backend(tensor.device).allgather([outputs], [tensor]).wait()
    return outputs, [torch.tensor([-1.0 - i]) for i in range(size)]


def other_device(rank: int, size: int) -> Result:
    """Any device of the process, whichever is current."""
    last = torch.device(DEVICE, torch.accelerator.device_count() - 1)
    tensor = torch.full((2,), float(rank), device=last)
    dist.all_reduce(tensor)
    assert tensor.device == last
    return [tensor], [torch.full((2,), float(sum(range(size))))]


def coalesced(rank: int, size: int) -> Result:
    summed, gathered, part = [full(2, 1), full(3, rank)], [zeros(size), zeros(size)], [zeros(1), zeros(1)]
    with dist._coalescing_manager():
        for tensor in summed:
            dist.all_reduce(tensor)
    with dist._coalescing_manager():
        for i, tensor in enumerate(gathered):
            dist.all_gather_into_tensor(tensor, full(1, rank + i))
    with dist._coalescing_manager(async_ops=True) as manager:
        for i, tensor in enumerate(part):
            dist.reduce_scatter_tensor(tensor, full(size, i + 1))
    manager.wait()
    spread, ranks = [zeros(2) if rank else full(2, 5), full(1, 1)], torch.arange(float(size))
    with dist._coalescing_manager(device=torch.device(DEVICE), async_ops=True) as manager:
        dist.broadcast(spread[0], 0)
        dist.all_reduce(spread[1])
    manager.wait()
    return [*summed, *gathered, *part, *spread], [
        *(torch.full((2,), float(size)), torch.full((3,), float(sum(range(size))))),
        *(ranks, ranks + 1),
        *(torch.tensor([float(size)]), torch.tensor([2.0 * size])),
        *(torch.full((2,), 5.0), torch.tensor([float(size)])),
    ]


def as_works(rank: int, size: int) -> Result:
    """Each collective with async_op=True."""
    results, whole = [zeros(size) for _ in range(3)], full(size, 1)
    outputs = [zeros(1) for _ in range(size)]
    single, element, reduced, scattered = full(1, rank), zeros(1), full(1, 1), zeros(1)
    works = [
        dist.all_reduce(whole, async_op=True),
        dist.all_gather(outputs, single, async_op=True),
        dist.all_gather_into_tensor(results[0], single, async_op=True),
        dist.all_to_all_single(results[1], full(size, rank), async_op=True),
        dist.all_to_all(list(results[2].split(1)), list(full(size, rank).split(1)), async_op=True),
        dist.reduce_scatter_tensor(element, full(size, 1), async_op=True),
        dist.reduce_scatter(scattered, [full(1, 1) for _ in range(size)], async_op=True),
        dist.reduce(reduced, 0, async_op=True),
        dist.broadcast(single.clone(), 0, async_op=True),
        dist.barrier(async_op=True),
    ]
    for work in works:
        assert isinstance(work, dist.Work)
        work.wait()
    ranks, all_ones = torch.arange(float(size)), torch.tensor([float(size)])
    return [whole, torch.cat(outputs), *results, element, scattered], [
        *(all_ones.expand(size), ranks, ranks, ranks, ranks, all_ones, all_ones)
    ]


def transfer(make: Callable[[int], torch.Tensor]) -> Case:
    def case(rank: int, size: int) -> Result:
        tensor, output = make(rank), torch.zeros_like(make(rank))
        works = [dist.isend(tensor, (rank + 1) % size, tag=3), dist.irecv(output, (rank - 1) % size, tag=3)]
        for work in works:
            assert work is not None
            work.wait()
        return [output], [make((rank - 1) % size).cpu()]

    return case


def to_itself(rank: int, size: int) -> Result:
    outputs = [zeros(2) for _ in range(4)]
    works = [dist.irecv(outputs[i], rank, tag=i % 2) for i in (3, 1)]  # of tag 1, in this order
    works += [dist.isend(full(2, 10 + i), rank, tag=i % 2) for i in range(4)]
    works += [dist.irecv(outputs[i], rank, tag=i % 2) for i in (0, 2)]
    for work in works:
        assert work is not None
        work.wait()
    return outputs, [torch.full((2,), float(i)) for i in (10, 13, 12, 11)]


def in_a_batch(rank: int, size: int) -> Result:
    """Also to itself."""
    outputs = [zeros(2) for _ in range(size)]
    calls = [dist.P2POp(dist.irecv, outputs[i], i) for i in range(size)]
    calls += [dist.P2POp(dist.isend, full(2, 10 * rank + i), i) for i in range(size)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return outputs, [torch.full((2,), 10.0 * i + rank) for i in range(size)]


_alone: list[Any] = []


def alone(rank: int) -> Any:
    """The group of this rank only."""
    if not _alone:
        groups = [dist.new_group([i]) for i in range(dist.get_world_size())]
        _alone.append(groups[rank])
    return _alone[0]


def in_a_group_of_one(rank: int, size: int) -> Result:
    group, outputs, value = alone(rank), [zeros(2) for _ in range(6)], full(2, rank + 1)
    dist.all_gather([outputs[0]], value, group=group)
    dist.all_gather_into_tensor(outputs[1], value, group=group)
    dist.reduce_scatter(outputs[2], [value], group=group)
    dist.reduce_scatter_tensor(outputs[3], value, group=group)
    dist.all_to_all([outputs[4]], [value], group=group)
    dist.scatter(outputs[5], [value], src=rank, group=group)
    dist.gather(value, [outputs[0]], dst=rank, group=group)
    for call in (dist.all_reduce, lambda x, group: dist.reduce(x, rank, group=group)):
        call(value, group=group)
    dist.broadcast(value, rank, group=group)
    dist.barrier(group=group)
    return [*outputs, value], [torch.full((2,), rank + 1.0)] * 7


def in_a_group_of_others(rank: int, size: int) -> Result:
    """Calls of ranks that the group does not contain do nothing."""
    group = dist.new_group([0])
    tensor = full(2, rank)
    dist.all_reduce(tensor, group=group)
    return [tensor], [torch.full((2,), float(rank))]


def objects(rank: int, size: int) -> Result:
    value, everything = {"rank": rank, "tensor": full(2, rank)}, [None] * size
    dist.all_gather_object(everything, value)
    at_root: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, at_root, 0)
    spread, mine = [rank + 7, "text"], [None]
    dist.broadcast_object_list(spread, 0)
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0)
    got = [torch.cat([each["tensor"].cpu() for each in everything]), torch.tensor([spread[0], mine[0]])]  # type: ignore[index]
    assert rank or at_root == list(range(size))
    if rank == 0:
        dist.send_object_list(["sent"], 1)
    if rank == 1:
        dist.recv_object_list(mine, 0)
        assert mine == ["sent"]
    return got, [torch.arange(float(size)).repeat_interleave(2), torch.tensor([7, rank])]


def reductions() -> Iterator[tuple[str, Case]]:
    """All operations and dtypes of NCCL, and bitwise operations."""

    def of(op: Any, name: str, dtype: torch.dtype, combine: Callable[[torch.Tensor], torch.Tensor]) -> Case:
        def case(rank: int, size: int) -> Result:
            numbers = [(torch.arange(size * 2) * (i + 1) % 3).to(dtype) for i in range(size)]
            wide = torch.stack([each.to(torch.float64 if dtype.is_floating_point else torch.int64) for each in numbers])
            expected = combine(wide).to(dtype)
            summed, root, part, whole = (numbers[rank].to(DEVICE) for _ in range(4))
            output, flat = part[:2].clone(), part[:2].clone()
            dist.all_reduce(summed, op)
            dist.reduce(root, 0, op)
            dist.reduce_scatter(output, list(part.split(2)), op)
            dist.reduce_scatter_tensor(flat, whole, op)
            mine = expected[2 * rank : 2 * rank + 2]
            return [summed, root, output, flat], [expected, expected if rank == 0 else numbers[rank], mine, mine]

        return case

    half = dist._make_nccl_premul_sum(0.5)
    numbers, bits = [*INTEGERS, *FLOATS, *FLOATS8[:2]], [*INTEGERS, torch.bool]
    rows: list[tuple[Any, str, list[torch.dtype], Callable[[torch.Tensor], torch.Tensor]]] = [
        (ReduceOp.SUM, "sum", [*numbers, torch.bool], lambda x: x.sum(0)),
        (ReduceOp.AVG, "average", numbers, lambda x: x.sum(0) / len(x)),
        (ReduceOp.PRODUCT, "product", [*numbers, torch.bool], lambda x: x.prod(0)),
        (ReduceOp.MIN, "minimum", [*numbers, torch.bool], lambda x: x.amin(0)),
        (ReduceOp.MAX, "maximum", [*numbers, torch.bool], lambda x: x.amax(0)),
        (half, "half the sum", FLOATS, lambda x: x.sum(0) / 2),
        (ReduceOp.BAND, "and", bits, lambda x: _bitwise(torch.bitwise_and, x)),
        (ReduceOp.BOR, "or", bits, lambda x: _bitwise(torch.bitwise_or, x)),
        (ReduceOp.BXOR, "xor", bits, lambda x: _bitwise(torch.bitwise_xor, x)),
    ]
    for op, name, dtypes, combine in rows:
        for dtype in dtypes:
            yield f"{name} of {dtype}", of(op, name, dtype, combine)


def _bitwise(operation: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    result = x[0]
    for each in x[1:]:
        result = operation(result, each)
    return result


def accepted() -> dict[str, Case]:
    cases: dict[str, Case] = {
        "all_to_all: unequal": exchange(lambda i, j: (j + 1, 2)),
        "all_to_all: unequal between other ranks": exchange(lambda i, j: (4,) if {i, j} == {1, 2} else (2,)),
        "all_to_all: nothing for some": exchange(lambda i, j: ((i + j) % 2, 3)),
        "all_to_all: nothing": exchange(lambda i, j: (0, 3)),
        "all_to_all: 0-dim": exchange(lambda i, j: ()),
        "all_to_all: strided": exchange(lambda i, j: (j + 1,), strided),
        "all_to_all: views": exchange_views,
        "all_to_all: shapes": exchange_shapes,
        "all_to_all_single: unequal": exchange_single(lambda i, j: j + 1),
        "all_to_all_single: nothing for some": exchange_single(lambda i, j: (i + j) % 2),
        "all_to_all_single: nothing": exchange_single(lambda i, j: 0),
        "all_to_all_single: no sizes": exchange_single(lambda i, j: 2, with_sizes=lambda *_: False),
        "all_to_all_single: sizes in rank 0": exchange_single(lambda i, j: 2, with_sizes=lambda rank, _: rank == 0),
        "all_to_all_single: sizes of outputs": exchange_single(
            lambda i, j: 2, with_sizes=lambda _, side: side == "output"
        ),
        "all_to_all_single: transposed": exchange_single(lambda i, j: j + 1, lambda x: x.mT.contiguous().mT),
        "all_to_all_single: elements": exchange_elements,
        "all_to_all_single: 0-dim": exchange_alone,
        "all_gather: unequal": gather_all(lambda i: (i + 1, 2)),
        "all_gather: nothing from one": gather_all(lambda i: (i, 2)),
        "all_gather: nothing": gather_all(lambda i: (0, 2)),
        "all_gather: 0-dim": gather_all(lambda i: ()),
        "all_gather: strided": gather_all(lambda i: (3, 2), strided),
        "all_gather: strided, unequal": gather_all(lambda i: (i + 1, 2), strided),
        "all_gather: shapes": gather_all_shapes,
        "all_gather: in place": gather_all_in_place,
        "all_gather: unequal, in place": gather_all_unequal_in_place,
        "all_gather_into_tensor: concatenated": gather_into((3, 2), lambda size: (3 * size, 2)),
        "all_gather_into_tensor: stacked": gather_into((3, 2), lambda size: (size, 3, 2)),
        "all_gather_into_tensor: flat": gather_into((3, 2), lambda size: (6 * size,)),
        "all_gather_into_tensor: 0-dim": gather_into((), lambda size: (size,)),
        "all_gather_into_tensor: nothing": gather_into((0, 2), lambda size: (0, 2)),
        "all_gather_into_tensor: transposed": gather_into(
            (3, 2), lambda size: (3 * size, 2), lambda x: x.mT.clone().mT
        ),
        "all_gather_into_tensor: in place": gather_into_in_place,
        "reduce_scatter: unequal": reduce_scattered(lambda i: (i + 1, 2)),
        "reduce_scatter: nothing for one": reduce_scattered(lambda i: (i, 2)),
        "reduce_scatter: nothing": reduce_scattered(lambda i: (0, 2)),
        "reduce_scatter: 0-dim": reduce_scattered(lambda i: ()),
        "reduce_scatter: strided": reduce_scattered(lambda i: (2, 2), strided),
        "reduce_scatter: strided, unequal": reduce_scattered(lambda i: (i + 1, 2), strided),
        "reduce_scatter: in place": reduce_scatter_in_place,
        "reduce_scatter_tensor: in place": reduce_scatter_into_in_place,
        "broadcast: 0-dim": spread(lambda rank: full((), rank)),
        "broadcast: nothing": spread(lambda rank: zeros(0)),
        "broadcast: transposed": spread(lambda rank: transposed(2, 3, value=rank)),
        "broadcast: from an expanded tensor": spread_expanded,
        "gather": collect,
        "gather: in place": collect_in_place,
        "scatter": distribute,
        "scatter: in place": distribute_in_place,
        "a view with the opposite sign": negative_view,
        "another device": other_device,
        "coalescing manager": coalesced,
        "works": as_works,
        "transfer: 0-dim": transfer(lambda rank: full((), rank + 1)),
        "transfer: nothing": transfer(lambda rank: zeros(0)),
        "transfer: transposed": transfer(lambda rank: transposed(2, 3, value=rank + 1)),
        "transfer to itself": to_itself,
        "transfers in a batch": in_a_batch,
        "group of one": in_a_group_of_one,
        "group of others": in_a_group_of_others,
        "objects": objects,
    }
    for name, lay in {"contiguous": lambda x: x, "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2]}.items():
        for form, shape in {
            "concatenated": lambda size: (3 * size, 2),
            "stacked": lambda size: (size, 3, 2),
            "flat": lambda size: (6 * size,),
        }.items():
            cases[f"reduce_scatter_tensor: {form}, {name}"] = reduce_scatter_into((3, 2), shape, lay)
    for dtype in MOVED:
        cases[f"all_to_all of {dtype}"] = exchange(lambda i, j: (j + 1,), dtype=dtype)
        cases[f"all_gather of {dtype}"] = gather_all(lambda i: (2,), dtype=dtype)
        cases[f"all_gather of {dtype}, unequal"] = gather_all(lambda i: (i + 1,), dtype=dtype)
        cases[f"broadcast of {dtype}"] = spread(lambda rank, dtype=dtype: full(3, (rank + 1) % 2, dtype))  # type: ignore[misc]
        cases[f"transfer of {dtype}"] = transfer(lambda rank, dtype=dtype: full(3, (rank + 1) % 2, dtype))  # type: ignore[misc]
    cases.update(reductions())
    return cases


# --- Refusals. A rank for which there is no call does nothing: the call must not wait for it. ---


def refused(rank: int, size: int) -> dict[str, tuple[type[Exception], Callable[[], Any] | None]]:
    last = torch.device(DEVICE, torch.accelerator.device_count() - 1)
    expanded = zeros(1).expand(3)
    at_root = lambda call: call if rank == 0 else None  # noqa: E731
    ones = lambda: [full(2, 1) for _ in range(size)]  # noqa: E731
    return {
        "all_to_all: a tensor too few": (ValueError, lambda: dist.all_to_all(ones(), ones()[1:])),
        "all_to_all: two dtypes": (ValueError, lambda: dist.all_to_all(ones(), [x.int() for x in ones()])),
        "all_to_all: two devices": (ValueError, lambda: dist.all_to_all(ones(), [x.to(last) for x in ones()])),
        "all_to_all: expanded output": (ValueError, lambda: dist.all_to_all([expanded] * size, ones())),
        "all_to_all_single: indivisible": (
            ValueError,
            lambda: dist.all_to_all_single(zeros(size + 1), zeros(size + 1)),
        ),
        "all_to_all_single: 0-dim, sizes": (ValueError, lambda: dist.all_to_all_single(zeros(), zeros(), [1] * size)),
        "all_to_all_single: sum": (ValueError, lambda: dist.all_to_all_single(zeros(size), zeros(size), [2] * size)),
        "all_to_all_single: a size too few": (
            ValueError,
            lambda: dist.all_to_all_single(zeros(size), zeros(size), [1]),
        ),
        "all_to_all_single: negative": (
            ValueError,
            lambda: dist.all_to_all_single(zeros(size), zeros(size), [-1, size + 1] + [0] * (size - 2)),
        ),
        "all_to_all_single: dtypes": (ValueError, lambda: dist.all_to_all_single(zeros(size), zeros(size).int())),
        "all_gather: own size": (ValueError, lambda: dist.all_gather(ones(), zeros(3))),
        "all_gather: a tensor too few": (ValueError, lambda: dist.all_gather(ones()[1:], zeros(2))),
        "all_gather: expanded output": (ValueError, lambda: dist.all_gather([expanded] * size, zeros(3))),
        "all_gather: two devices": (ValueError, lambda: dist.all_gather(ones(), zeros(2).to(last))),
        "all_gather_into_tensor: size": (
            ValueError,
            lambda: dist.all_gather_into_tensor(zeros(2 * size + 1), zeros(2)),
        ),
        "all_gather_into_tensor: dtypes": (
            TypeError,
            lambda: dist.all_gather_into_tensor(zeros(2 * size), zeros(2).int()),
        ),
        "reduce_scatter: own size": (ValueError, lambda: dist.reduce_scatter(zeros(3), ones())),
        "reduce_scatter: a tensor too few": (ValueError, lambda: dist.reduce_scatter(zeros(2), ones()[1:])),
        "reduce_scatter_tensor: size": (ValueError, lambda: dist.reduce_scatter_tensor(zeros(2), zeros(2 * size + 1))),
        "gather: unequal": (ValueError, at_root(lambda: dist.gather(zeros(2), [zeros(i + 1) for i in range(size)], 0))),
        "gather: shape": (ValueError, at_root(lambda: dist.gather(zeros(2), [zeros(1, 2) for _ in range(size)], 0))),
        "gather: a tensor too few": (ValueError, at_root(lambda: dist.gather(zeros(2), ones()[1:], 0))),
        "gather: no outputs": (ValueError, at_root(lambda: dist.gather(zeros(2), None, 0))),
        "gather: outputs elsewhere": (ValueError, (lambda: dist.gather(zeros(2), ones(), 0)) if rank else None),
        "scatter: unequal": (
            ValueError,
            at_root(lambda: dist.scatter(zeros(2), [zeros(i + 1) for i in range(size)], 0)),
        ),
        "scatter: a tensor too few": (ValueError, at_root(lambda: dist.scatter(zeros(2), ones()[1:], 0))),
        "scatter: inputs elsewhere": (ValueError, (lambda: dist.scatter(zeros(2), ones(), 0)) if rank else None),
        "all_reduce: expanded": (ValueError, lambda: dist.all_reduce(expanded)),
        "all_reduce: none": (TypeError, lambda: dist.all_reduce(None)),
        "average of torch.bool": (TypeError, lambda: dist.all_reduce(zeros(2).bool(), ReduceOp.AVG)),
        "factor for integers": (TypeError, lambda: dist.all_reduce(zeros(2).int(), dist._make_nccl_premul_sum(2.0))),
        **{
            f"{name} of {dtype}": (ValueError, lambda op=op, dtype=dtype: dist.all_reduce(zeros(2, dtype=dtype), op))
            for name, op in {"and": ReduceOp.BAND, "or": ReduceOp.BOR, "xor": ReduceOp.BXOR}.items()
            for dtype in (torch.float32, torch.bfloat16, torch.complex64)
        },
        **{
            f"{name} of complex numbers": (
                ValueError,
                lambda op=op: dist.reduce(zeros(2, dtype=torch.complex64), 0, op),
            )
            for name, op in {"product": ReduceOp.PRODUCT, "minimum": ReduceOp.MIN, "maximum": ReduceOp.MAX}.items()
        },
        "isend: a rank too many": (ValueError, lambda: dist.isend(zeros(2), size)),
        "irecv: negative tag": (ValueError, lambda: dist.irecv(zeros(2), 0, tag=-1)),
        "irecv: expanded": (ValueError, lambda: dist.irecv(expanded, (rank + 1) % size)),
    }


def differences(rank: int) -> list[str]:
    size, found = dist.get_world_size(), []
    for name, case in accepted().items():
        try:
            got, expected = case(rank, size)
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
            continue
        for a, b in zip(got, expected, strict=True):
            if (a.dtype, a.shape) != (b.dtype, b.shape) or not torch.equal(_bits(a.cpu()), _bits(b)):
                found.append(f"{name}: got {a.tolist()}, expected {b.tolist()}")
    for name, (kind, call) in refused(rank, size).items():
        if call is not None:
            try:
                call()
                found.append(f"{name}: accepted")
            except kind:
                pass
            except Exception as error:
                found.append(f"{name}: {type(error).__name__}: {error}")
        still = full(1, 1)
        dist.all_reduce(still)
        if still.item() != size:
            found.append(f"{name}: the next collective is wrong")
    return found


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.resolve_neg().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


@pytest.mark.parametrize("size", [2, 3])
def test_what_collectives_accept_and_refuse(size, tmp_path):
    assert run_ranks(differences, size, tmp_path) == [[]] * size
