"""Operators that move, select and combine elements by index."""

from __future__ import annotations

import torch
from torch.nn import functional

from backend_conformance import Device, Level, check
from backend_conformance.checks.operators import numbers
from backend_conformance.comparison import ALL, Comparison, Function, layouts


def index(x: torch.Tensor, *values: int) -> torch.Tensor:
    return torch.tensor(values, device=x.device)


SELECTIONS: dict[str, Function] = {
    "cat": lambda x: torch.cat([x, x[:2], x[:0]]),
    "cat_last": lambda x: torch.cat([x, x[:, :1]], -1),
    "stack": lambda x: torch.stack([x, x.flip(0)], 1),
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll((2, -1), (0, 1)),
    "rot90": lambda x: x.rot90(),
    "repeat": lambda x: x.repeat(2, 1, 2),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "repeat_interleave_tensor": lambda x: x.repeat_interleave(index(x, 0, 1, 2, 0, 3), 0),
    "index_select": lambda x: x.index_select(1, index(x, 3, 0, 0)),
    "gather": lambda x: x.gather(1, index(x, 0, 2, 5, 1).view(2, 2)),
    "take_along_dim": lambda x: x.take_along_dim(index(x, 4, 1, 2).view(3, 1), 0),
    "take": lambda x: x.take(index(x, 0, 29, 7)),
    "scatter": lambda x: x.scatter(1, index(x, 0, 2, 5, 1).view(2, 2), x[:2, 2:4].clone()),
    "scatter_value": lambda x: x.scatter(0, index(x, 4, 0).view(1, 2), 1),
    "scatter_add": lambda x: x.scatter_add(0, index(x, 0, 0, 1, 4).view(2, 2), x[2:4, :2].clone()),
    "scatter_reduce": lambda x: x.scatter_reduce(0, index(x, 0, 0, 1, 4).view(2, 2), x[2:4, :2].clone(), "amax"),
    "index_add": lambda x: x.index_add(0, index(x, 1, 1, 4), x[:3].clone()),
    "index_copy": lambda x: x.index_copy(1, index(x, 3, 1), x[:, :2].clone()),
    "index_fill": lambda x: x.index_fill(0, index(x, 2), 1),
    "index_put": lambda x: x.index_put((index(x, 0, 0, 3), index(x, 1, 1, 5)), x[0, :3].clone(), accumulate=True),
    "advanced_index": lambda x: x[index(x, -1, 0), index(x, 2, -2)],
    "masked_select": lambda x: x.masked_select(torch.arange(30, device=x.device).view(5, 6) % 4 == 1),
    "masked_fill": lambda x: x.masked_fill(torch.arange(6, device=x.device) % 2 == 0, 1),
    "masked_scatter": lambda x: x.masked_scatter(torch.arange(6, device=x.device) % 2 == 0, x.flip(0).clone()),
    "nonzero": lambda x: x.nonzero(),
    "argwhere": lambda x: torch.argwhere(x[0]),
    "sort": lambda x: x.sort(1).values,
    "sort_descending": lambda x: x.sort(0, descending=True).values,
    "stable_sort": lambda x: (x != 0).to(torch.uint8).sort(stable=True, dim=1).indices,
    "topk": lambda x: x.topk(3, 1).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "unique": lambda x: x.unique(return_counts=True),
    "unique_consecutive": lambda x: x.sort(1).values.flatten().unique_consecutive(return_inverse=True),
    "searchsorted": lambda x: torch.searchsorted(x[0].sort().values, x),
    "bucketize": lambda x: torch.bucketize(x, x[0].sort().values, right=True),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(2),
    "diag_embed": lambda x: x.diag_embed(1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[:, 0].clone()),
    "slice_scatter": lambda x: x.slice_scatter(x[:2].clone(), 0, 1, 5, 2),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), value=1),
    "pad_circular": lambda x: functional.pad(x[None], (2, 1), mode="circular"),
    "embedding": lambda x: functional.embedding(index(x, 4, 0, 4), x),
    "one_hot": lambda x: functional.one_hot(index(x, 0, 3, 1), 5),
    "bincount": lambda x: torch.bincount(x.flatten().abs().long() if not x.is_complex() else index(x, 1)),
    "histc": lambda x: torch.histc(x if x.dtype == torch.float64 else x.float(), 5, -4, 4),  # CUDA refuses halves
    "isin": lambda x: torch.isin(x, x[1]),
    "unfold": lambda x: x.unfold(1, 3, 2).contiguous(),
    "combinations": lambda x: torch.combinations(x[0]),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0], x[1, :2]),
    "block_diag": lambda x: torch.block_diag(x[:1], x[:, :2]),
    "tensor_split": lambda x: x.tensor_split((1, 3), 1),
    "diff": lambda x: x.diff(dim=1),
    "gradient": lambda x: torch.gradient(x),
    "permute_copy": lambda x: x.view(5, 2, 3).permute(2, 0, 1).contiguous(),
}


@check(level=Level.TRAINS, hook="kernels that index", cases=tuple(SELECTIONS))
def selection_follows_the_cpu(device: Device, case: str) -> None:
    """An operator that moves elements gives the CPU's elements, for all dtypes and layouts, and its gradient.

    No arithmetic is involved in most of them, so the elements must be the same.
    """
    function = SELECTIONS[case]
    comparison = Comparison(device)
    for dtype in ALL:
        for number, x in enumerate(layouts(numbers(dtype, seed=6))):
            comparison.call(f"{dtype}, layout {number}", function, [x])
    for dtype in (torch.float32, torch.float64, torch.complex64):
        comparison.call(f"{dtype}, gradient", function, [numbers(dtype, seed=6)], gradients=True)
    comparison.conclude()


@check(level=Level.TRAINS, hook="kernels that index")
def repeated_indices_are_added_up(device: Device) -> None:
    """Repeated indices add up: in `index_put`, `index_add`, `scatter_add` and the gradient of an embedding.

    Threads that add to the same element need atomic operations; without them, sums are too small.
    """
    count = 20000
    where = torch.arange(count, device=device.this) % 7
    ones = torch.ones(count, device=device.this)
    expected = torch.bincount(where.cpu(), minlength=7).float()
    zeros = torch.zeros(7, device=device.this)
    device.cpu_equal(zeros.index_put((where,), ones, accumulate=True), expected)
    device.cpu_equal(zeros.index_add(0, where, ones), expected)
    device.cpu_equal(zeros.scatter_add(0, where, ones), expected)
    weight = torch.zeros(7, 2, device=device.this, requires_grad=True)
    functional.embedding(where, weight).sum().backward()
    assert weight.grad is not None
    device.cpu_equal(weight.grad[:, 1], expected)
    device.cpu_equal(torch.bincount(where), expected.long())
