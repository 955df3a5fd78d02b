"""flex_attention and its backward pass in ordinary operators, a block of rows of the scores at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op
from torch._inductor.ir import get_fill_order
from torch.nn.attention.flex_attention import _LARGE_SPARSE_BLOCK_SIZE, _vmap_for_bhqkv
from torch.utils._pytree import tree_flatten, tree_unflatten

BLOCK_BYTES = 32 * 2**20
"""What the scores of a block of rows occupy, unless those of _FEWEST_ROWS occupy more. There are a few such tensors."""

_FEWEST_ROWS = 8
_ROWS_OF_UNKNOWN_SIZES = 128
_ROWS = 2  # the dimension of (batch, head, row, width)
_INDICES = 5  # the gradients of the score and its four indices precede those of what is captured


class Functions(NamedTuple):
    """What a call of flex_attention has besides tensors."""

    score_mod: Callable[..., Tensor]
    mask_mod: Callable[..., Tensor]
    scale: float
    unit: float
    """Logarithms of sums, and the largest scores, are multiples of it."""
    joint: Callable[..., Sequence[Any]] | None = None
    """The backward pass of `score_mod`."""
    learned: tuple[int, ...] = ()
    """The numbers of the captured tensors for which `joint` returns a gradient."""


class Operands(NamedTuple):
    """The tensors and sizes that the computation of each block reads."""

    query: Tensor
    key: Tensor
    value: Tensor
    blocks: tuple[Any, ...]
    """What `listed_blocks` returns."""
    captured: tuple[Any, ...]
    captured_by_mask: tuple[Any, ...]
    saved: tuple[Tensor, ...] = ()
    """For the backward pass: the logarithms of sums, the gradient of the result, and what the derivative of a
    softmax subtracts, for each row."""


def listed_blocks(key: Tensor, lists: Sequence[Tensor | None], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Which blocks of scores are used in part, and which as a whole; then the rows and columns of a block.

    Args:
        lists: for each row of blocks, how many are used in part, and their numbers; then those that are used as a
            whole, or None.
        sizes: the rows and columns of a block.
    """
    if all(isinstance(size, int) and size >= _LARGE_SPARSE_BLOCK_SIZE for size in sizes):
        return ()  # PyTorch's mask without blocks
    columns = (key.size(_ROWS) + sizes[1] - 1) // sizes[1]

    def dense(count: Tensor | None, numbers: Tensor | None) -> Tensor | None:
        if count is None or numbers is None:
            return None
        place = torch.arange(numbers.size(-1), device=numbers.device)
        used = (place < count.unsqueeze(-1)) & (numbers < columns)
        row = torch.zeros((*numbers.shape[:-1], columns + 1), dtype=torch.bool, device=numbers.device)
        return row.scatter(-1, torch.where(used, numbers, columns).long(), True)[..., :-1]

    return (dense(*lists[:2]), dense(*lists[2:]), *sizes)


def forward(call: Functions, operands: Operands) -> tuple[Tensor, ...]:
    """The result, the logarithms of the sums of weights, and the largest scores."""
    query, value = operands.query, operands.value
    working = _working(query)
    operands = operands._replace(key=operands.key.to(working), value=value.to(query.dtype))

    def new(rows: Any) -> tuple[Tensor, ...]:
        shape = (*query.shape[:_ROWS], rows)
        out = query.new_zeros((*shape, value.size(-1)))
        return out, query.new_zeros(shape, dtype=working), query.new_zeros(shape, dtype=working)

    def body(rows: _Rows, carried: tuple[Tensor, ...], operands: Operands) -> tuple[Tensor, ...]:
        query = rows.of(operands.query)
        _, scores, _ = _scores(call, operands, query, rows)
        sums = scores.logsumexp(-1)
        weights = _weights(scores, sums).to(query.dtype)
        out = _by_query(_by_key(weights, operands.value) @ operands.value, query)
        found = (out, sums, scores.amax(-1))
        return tuple(rows.put(into, block) for into, block in zip(carried, found, strict=True))

    out, sums, largest = _over_rows(body, new, operands)
    length = query.size(_ROWS)
    statistics = ((each[:, :, :length] / call.unit).to(torch.float32) for each in (sums, largest))
    return _in_order_of(query, out[:, :, :length]), *statistics


def backward(call: Functions, operands: Operands, out: Tensor, of_out: Tensor, of_sums: Tensor) -> list[Tensor]:
    """The gradients of query, key, value, and of the captured tensors that `Functions.learned` names.

    Args:
        operands: `saved` holds the logarithms of sums.
        out: the result of the forward pass.
        of_out, of_sums: the gradients of the result and of the logarithms of sums.
    """
    query, key, value = operands[:3]
    working = _working(query)
    sums = operands.saved[0].to(working) * call.unit
    subtracted = (out.to(working) * of_out.to(working)).sum(-1) - of_sums.to(working) / call.unit
    operands = operands._replace(saved=(sums, of_out.to(query.dtype), subtracted))
    learned = [operands.captured[number] for number in call.learned]

    def new(rows: Any) -> tuple[Tensor, ...]:
        of_query = query.new_zeros((*query.shape[:_ROWS], rows, query.size(-1)))
        others = (
            torch.zeros(each.shape, dtype=_wide(each.dtype), device=each.device) for each in (key, value, *learned)
        )
        return of_query, *others

    def body(rows: _Rows, carried: tuple[Tensor, ...], operands: Operands) -> tuple[Tensor, ...]:
        query, (key, value) = rows.of(operands.query), operands[1:3]
        sums, of_out, subtracted = (rows.of(each) for each in operands.saved)
        scores, modified, allowed = _scores(call, operands, query, rows)
        weights = _weights(modified, sums) * rows.are_new().to(working)
        of_value = _by_key(weights.to(query.dtype), value).mT @ _by_key(of_out, value)
        of_weights = _by_query(_by_key(of_out.to(working), value) @ value.to(working).mT, query)
        of_modified = weights * (of_weights - subtracted.unsqueeze(-1))
        of_scores, of_captured = _through_modification(call, operands, scores, rows, of_modified)
        of_scores = torch.where(allowed, of_scores * call.scale, 0.0).to(query.dtype)
        of_query = _by_query(_by_key(of_scores, key) @ key, query)
        of_key = _by_key(of_scores, key).mT @ _by_key(query, key)
        sums_over_rows = zip(carried[1:], (_summed(of_key, key), _summed(of_value, value), *of_captured), strict=True)
        return rows.put(carried[0], of_query), *(into + each.to(into.dtype) for into, each in sums_over_rows)

    of_query, *others = _over_rows(body, new, operands)
    of_key, of_value, *of_learned = (
        each.to(like.dtype) for each, like in zip(others, (key, value, *learned), strict=True)
    )
    of_query = of_query[:, :, : query.size(_ROWS)]
    return [_in_order_of(query, of_query), _in_order_of(key, of_key), _in_order_of(value, of_value), *of_learned]


# --- Blocks ---


class _Rows(NamedTuple):
    """The rows of a block: all rows, or some of them, of which the last ones may be beyond the end."""

    numbers: Tensor
    length: Any
    are_all: bool

    def within(self) -> Tensor:
        """The numbers of the rows; that of the last row in place of those beyond the end."""
        return self.numbers if self.are_all else self.numbers.clamp(max=self.length - 1)

    def are_new(self) -> Tensor:
        """Whether each row of scores is not beyond the end."""
        are_new: Tensor = self.numbers < self.length
        return are_new.unsqueeze(-1)

    def of(self, tensor: Tensor) -> Tensor:
        return tensor if self.are_all else tensor.index_select(_ROWS, self.within())

    def put(self, into: Tensor, block: Tensor) -> Tensor:
        """`into`, which has room for rows beyond the end, with these rows."""
        return block if self.are_all else into.index_copy(_ROWS, self.numbers, block)


def _over_rows(
    body: Callable[[_Rows, tuple[Tensor, ...], Operands], tuple[Tensor, ...]],
    new: Callable[[Any], tuple[Tensor, ...]],
    operands: Operands,
) -> tuple[Tensor, ...]:
    """What `body` makes of `new(number of rows)`, block by block, in a loop if there is more than one."""
    query, key = operands[:2]
    length = query.size(_ROWS)
    size = _rows_of_a_block(query, key)
    if isinstance(length, int) and size >= length:
        rows = _Rows(torch.arange(length, device=query.device), length, True)
        return body(rows, new(length), operands)
    carried = new((length + size - 1) // size * size)
    leaves, spec = tree_flatten(operands)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, (Tensor, torch.SymInt))]

    def unpack(read: Sequence[Any]) -> Operands:
        all_leaves = list(leaves)
        for place, leaf in zip(places, read, strict=True):
            all_leaves[place] = leaf
        unpacked: Operands = tree_unflatten(all_leaves, spec)
        return unpacked

    def goes_on(start: Tensor, _: Tensor, *rest: Any) -> Tensor:
        return start < unpack(rest[len(carried) :]).query.size(_ROWS)

    def step(start: Tensor, numbers: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        read = unpack(rest[len(carried) :])
        rows = _Rows(numbers, read.query.size(_ROWS), False)
        return start + size, numbers + size, *body(rows, rest[: len(carried)], read)

    start = torch.zeros((), dtype=torch.int64)  # on the CPU, so the host need not wait to know whether to go on
    numbers = torch.arange(size, device=query.device)
    begin: Any = (start, numbers, *carried)
    found = while_loop_op(goes_on, step, begin, tuple(leaves[place] for place in places))
    return tuple(found[2:])


def _rows_of_a_block(query: Tensor, key: Tensor) -> int:
    row = (query.size(0), query.size(1), key.size(_ROWS), _working(query).itemsize)
    if not all(isinstance(each, int) for each in row):
        return _ROWS_OF_UNKNOWN_SIZES
    return max(_FEWEST_ROWS, BLOCK_BYTES // max(math.prod(row), 1))


# --- Formulas ---


def _scores(call: Functions, operands: Operands, query: Tensor, rows: _Rows) -> tuple[Tensor, Tensor, Tensor]:
    """The scores, what the modification makes of them, and which are allowed by the mask."""
    key = operands.key.to(_working(query))
    scores = _by_query(_by_key(query.to(key.dtype), key) @ key.mT, query) * call.scale
    indices = _indices(scores, rows)
    mask = _vmap_for_bhqkv(call.mask_mod, prefix=(), suffix=(None,) * len(operands.captured_by_mask))
    allowed = mask(*indices, *operands.captured_by_mask)
    if operands.blocks:
        partly, wholly, *sizes = operands.blocks
        allowed = _listed(partly, indices, sizes) & allowed
        if wholly is not None:
            allowed = allowed | _listed(wholly, indices, sizes)
    modify = _vmap_for_bhqkv(call.score_mod, prefix=(0,), suffix=(None,) * len(operands.captured))
    modified = modify(scores, *indices, *operands.captured).to(scores.dtype)
    return scores, torch.where(allowed, modified, -math.inf), allowed


def _indices(scores: Tensor, rows: _Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, head, _, column = (torch.arange(size, device=scores.device) for size in scores.shape)
    return batch, head, rows.within(), column


def _listed(blocks: Tensor, indices: Sequence[Tensor], sizes: Sequence[Any]) -> Tensor:
    """Whether each score is in one of these blocks. A mask may have fewer batches and heads, which are repeated."""
    batch, head, row, column = indices
    return blocks[
        (batch % blocks.size(0)).view(-1, 1, 1, 1),
        (head % blocks.size(1)).view(-1, 1, 1),
        (row // sizes[0]).view(-1, 1),
        column // sizes[1],
    ]


def _weights(scores: Tensor, sums: Tensor) -> Tensor:
    """What the values are multiplied by. Rows without an allowed score have none."""
    sums = sums.unsqueeze(-1)
    return torch.where(sums == -math.inf, 0.0, torch.exp(scores - sums))


def _through_modification(
    call: Functions, operands: Operands, scores: Tensor, rows: _Rows, of_modified: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """The gradients of the scores, and of the captured tensors that get one."""
    assert call.joint is not None
    joint = call.joint
    summed: list[bool] = []

    def of_the_score(*arguments: Any) -> Tensor:
        found = joint(*arguments)
        # PyTorch sums the gradient of a tensor that is indexed, in its operator's rule for vmap.
        summed[:] = [not torch._C._functorch.is_batchedtensor(found[_INDICES + number]) for number in call.learned]
        of_score: Tensor = found[0]
        return of_score

    def of_the_captured(*arguments: Any) -> tuple[Tensor, ...]:
        found = joint(*arguments)
        return tuple(found[_INDICES + number] for number in call.learned)

    arguments = (scores, *_indices(scores, rows), of_modified, *operands.captured)
    suffix = (0, *(None,) * len(operands.captured))
    of_scores = _vmap_for_bhqkv(of_the_score, prefix=(0,), suffix=suffix)(*arguments)
    if not call.learned:
        return of_scores, []
    out_dims: Any = tuple(None if each else 0 for each in summed)
    found = _vmap_for_bhqkv(of_the_captured, prefix=(0,), suffix=suffix, out_dims=out_dims)(*arguments)
    of_captured = (each if is_sum else each.sum((0, 1, 2, 3)) for each, is_sum in zip(found, summed, strict=True))
    return of_scores, list(of_captured)


def _by_key(tensor: Tensor, key: Tensor) -> Tensor:
    """The rows of all heads of a query that share a head of `key`, one head's after the other's."""
    batch, heads, rows, width = tensor.shape
    of_key = key.size(1)
    return tensor.reshape(batch, of_key, heads // of_key * rows, width)


def _by_query(tensor: Tensor, query: Tensor) -> Tensor:
    """The reverse of `_by_key`."""
    return tensor.reshape(*query.shape[:3], tensor.size(-1))


def _summed(gradient: Tensor, of: Tensor) -> Tensor:
    """The sum over a batch for which there is one tensor."""
    return gradient.sum(0, keepdim=True) if of.size(0) == 1 else gradient


def _working(query: Tensor) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum over blocks of rows of this dtype."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def scatter(shape: Sequence[Any], indices: Sequence[Tensor], values: Tensor) -> Tensor:
    """``flex_lib::zeros_and_scatter``: the gradient of an indexed tensor."""
    wide = values.to(_wide(values.dtype))
    same = [dim for dim in range(wide.dim()) if all(index.stride(dim) == 0 for index in indices)]
    if same:  # values for one element: all of them if there is no index
        wide = wide.sum(same, keepdim=True)
        first = tuple(slice(1) if dim in same else slice(None) for dim in range(wide.dim()))
        indices = [index[first] for index in indices]
    if not indices:
        return wide.view(shape).to(values.dtype)
    zeros = torch.zeros(shape, dtype=wide.dtype, device=values.device)
    return zeros.index_put(tuple(indices), wide, accumulate=True).to(values.dtype)


def _in_order_of(like: Tensor, tensor: Tensor) -> Tensor:
    """`tensor` with dimensions in memory in the order of `like`, but the last one first, as PyTorch's kernels return
    them."""
    last = tensor.dim() - 1
    inner_first = [last, *(dim for dim in get_fill_order(like.stride()) if dim != last)]
    order = inner_first[::-1]
    back = [order.index(dim) for dim in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)
