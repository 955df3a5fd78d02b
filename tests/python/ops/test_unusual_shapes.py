"""Inputs without dimensions, without elements and with seven dimensions, for operators whose samples have few of them.

Element-wise operators and reductions: the census's check `shapes`. Also here: what the census cannot move,
and operators for which PyTorch's database has no sample of such a shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from as_cpu import assert_as_cpu, ones
from devices import DEVICE

pytestmark = pytest.mark.any_device


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


def counted(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


seven, scalar, none = counted(2, 1, 2, 1, 3, 1, 2), torch.tensor(3.0), ones(0)
backwards = (6, 5, 4, 3, 2, 1, 0)

Case = tuple[Callable[..., Any], ...]

SEVEN: dict[str, Any] = {
    "permute-contiguous": (lambda x: x.permute(backwards).contiguous(), seven),
    "copy-permuted": (lambda x, y: x.permute(backwards).copy_(y), seven, counted(2, 1, 3, 1, 2, 1, 2)),
    "flip": (lambda x: x.flip(0, 4, 6), seven),
    "roll": (lambda x: x.roll((1, 2), (0, 4)), seven),
    "cat": (lambda x: torch.cat([x, x], 4), seven),
    "stack": (lambda x: torch.stack([x, x], 7), seven),
    "index": (lambda x, i: x[:, :, i, ..., 1, 0, i], seven, ints(2)),
    "index_put": (lambda x, i, v: x.index_put_((i, i, i, i, i, i, i), v), seven, ints(1), ones(1)),
    "index_select": (lambda x, i: x.index_select(4, i), seven, ints(5)),
    "gather": (lambda x, i: x.gather(4, i), seven, ints(2, 1, 2, 1, 3, 1, 2)),
    "scatter_add": (lambda x, i: x.scatter_add(4, i, x), seven, ints(2, 1, 2, 1, 3, 1, 2)),
    "where": (lambda x, y: torch.where(x > 4, x, y), seven, scalar),
    "cumsum": (lambda x: x.cumsum(4), seven),
    "sort": (lambda x: x.sort(4, descending=True), seven),
    "topk": (lambda x: x.topk(2, 4), seven),
    "softmax": (lambda x: x.softmax(4), seven),
    "layer_norm": (lambda x: F.layer_norm(x, (3, 1, 2)), seven),
    "linear": (F.linear, seven, counted(3, 2)),
    "matmul": (torch.matmul, seven, counted(2, 4)),
    "einsum": (lambda x: torch.einsum("abcdefg,gfedcba->ae", x, x.permute(backwards)), seven),
    "tensordot": (lambda x: torch.tensordot(x, x, ([0, 6], [0, 6])), seven),
    "diagonal": (lambda x: x.diagonal(1, 0, 2).clone(), seven),
    "unfold": (lambda x: x.unfold(4, 2, 1).clone(), seven),
    "pad": (lambda x: F.pad(x, (1, 1, 0, 0, 2, 1)), seven),
    "repeat": (lambda x: x.repeat(1, 2, 1, 1, 1, 2, 1), seven),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 4), seven),
    "nonzero": (torch.nonzero, seven),
    "unique": (lambda x: x.unique(dim=4), seven),
    "var_mean": (lambda x: torch.var_mean(x, (0, 4, 6)), seven),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=(0, 4, 6)), seven),
    "fftn": (lambda x: torch.fft.fftn(x, dim=(0, 4, 6)), seven),
    "expand": (lambda x: x.expand(2, 5, 2, 1, 3, 1, 2).contiguous(), seven),
    "dropout-off": (lambda x: F.dropout(x, 0.0), seven),
    "embedding": (F.embedding, ints(2, 1, 2, 1, 1, 2), counted(3, 2)),
}

WITHOUT_DIMENSIONS: dict[str, Any] = {
    "addr_": (lambda x, v: x.addr_(v, v), scalar, ones(1)),
    "copy_": (lambda x, y: x.copy_(y), scalar, torch.tensor(4, dtype=torch.int64)),
    "index-none": (lambda x: x[None], scalar),
    "index-mask": (lambda x: x[x > 0], scalar),
    "set-mask": (lambda x: x.__setitem__(x > 0, 5.0) or x, scalar),
    "flip": (lambda x: x.flip(0), scalar),
    "cat": (lambda x: torch.cat([x, x]), scalar),
    "stack": (lambda x: torch.stack([x, x]), scalar),
    "matmul": (torch.matmul, scalar, scalar),
    "linear": (F.linear, ones(3), ones(3), scalar),
    "searchsorted": (torch.searchsorted, counted(4), scalar),
    "trace": (torch.trace, scalar),
    "diag": (torch.diag, scalar),
    "embedding": (F.embedding, ints(), counted(3, 2)),
    "cross_entropy": (F.cross_entropy, counted(3), ints()),
    "tensor_split": (lambda x: x.tensor_split(2), scalar),
    "isin": (torch.isin, scalar, counted(4)),
    "renorm": (lambda x: x.renorm(2, 0, 1.0), scalar),
}

WITHOUT_ELEMENTS: dict[str, Any] = {
    "item": (lambda x: x.item(), none),
    "copy_": (lambda x, y: x.copy_(y), none, ones(1)),
    "index": (lambda x, i: x[i], counted(3), ints(0)),
    "index-of-none": (lambda x, i: x[i], none, ints(1)),
    "index-mask": (lambda x: x[x > 9], counted(3)),
    "index_put": (lambda x, i: x.index_put_((i,), x[:0]), counted(3), ints(0)),
    "index_select": (lambda x, i: x.index_select(0, i), counted(3), ints(0)),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, i.float()), counted(3), ints(0)),
    "cummax": (lambda x: x.cummax(0), none),
    "topk": (lambda x: x.topk(0), none),
    "topk-too-many": (lambda x: x.topk(1), none),
    "kthvalue": (lambda x: x.kthvalue(1), none),
    "median": (lambda x: x.median(), none),
    "median-dimension": (lambda x: x.median(0), none),
    "max-dimension": (lambda x: x.max(0), none),
    "argmax": (lambda x: x.argmax(), none),
    "var": (lambda x: x.var(), none),
    "quantile": (lambda x: x.quantile(0.5), none),
    "logsumexp": (lambda x: x.logsumexp(0), none),
    "unique-dimension": (lambda x: x.unique(dim=0), ones(0, 3)),
    "bincount": (torch.bincount, ints(0)),
    "matmul-no-rows": (torch.matmul, ones(0, 3), ones(3, 2)),
    "bmm": (torch.bmm, ones(0, 2, 3), ones(0, 3, 2)),
    "mv": (torch.mv, ones(3, 0), ones(0)),
    "dot": (torch.dot, ones(0), ones(0)),
    "linear-no-features": (F.linear, ones(2, 0), ones(4, 0), counted(4)),
    "conv2d-no-batch": (F.conv2d, ones(0, 2, 5, 5), ones(3, 2, 3, 3)),
    "conv_transpose2d-no-batch": (F.conv_transpose2d, ones(0, 2, 5, 5), ones(2, 3, 3, 3)),
    "max_pool2d-no-batch": (lambda x: F.max_pool2d(x, 2), ones(0, 2, 4, 4)),
    "avg_pool2d-no-batch": (lambda x: F.avg_pool2d(x, 2), ones(0, 2, 4, 4)),
    "adaptive_avg_pool2d-no-batch": (lambda x: F.adaptive_avg_pool2d(x, 2), ones(0, 2, 4, 4)),
    "interpolate-no-batch": (lambda x: F.interpolate(x, scale_factor=2.0), ones(0, 2, 4, 4)),
    "embedding": (F.embedding, ints(0), counted(3, 2)),
    "embedding_bag": (F.embedding_bag, ints(0), counted(3, 2), ints(0)),
    "one_hot": (lambda i: F.one_hot(i, 3), ints(0)),
    "one_hot-unknown": (F.one_hot, ints(0)),
    "cross_entropy": (F.cross_entropy, ones(0, 3), ints(0)),
    "mse_loss": (F.mse_loss, none, none),
    "attention": (F.scaled_dot_product_attention, ones(0, 2, 3, 4), ones(0, 2, 3, 4), ones(0, 2, 3, 4)),
    "attention-no-keys": (F.scaled_dot_product_attention, ones(1, 2, 3, 4), ones(1, 2, 0, 4), ones(1, 2, 0, 4)),
    "masked_scatter": (lambda x: x.masked_scatter(x > 9, x[:0]), counted(3)),
    "pad-to-none": (lambda x: F.pad(x, (-1, -2)), ones(2, 3)),
    "diag": (torch.diag, none),
    "tril": (torch.tril, ones(0, 3)),
    "inv-no-batch": (torch.linalg.inv, ones(0, 2, 2)),
    "fft": (torch.fft.fft, none),
    "fft-no-batch": (torch.fft.fft, ones(0, 3)),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), ones(2, 0), ones(0, 3)),
    "isin": (torch.isin, counted(3), none),
    "combinations": (torch.combinations, none),
    "cov": (torch.cov, ones(2, 0)),
    "local_scalar_dense": (torch.ops.aten._local_scalar_dense, none),
    "layer_norm-statistics": (lambda x: torch.native_layer_norm(x, (0,), None, None, 1e-5), ones(2, 0)),
    "isin-number": (lambda x: torch.isin(5.0, x), none),
}

FAMILIES = {"seven": SEVEN, "no-dimensions": WITHOUT_DIMENSIONS, "no-elements": WITHOUT_ELEMENTS}
CASES = {f"{family}-{name}": case for family, cases in FAMILIES.items() for name, case in cases.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_unusual_shapes_are_answered_as_on_the_cpu(case):
    function, *arguments = case
    for _ in range(2):  # what the first call has taught must not change the second
        assert_as_cpu(function, *arguments)


@pytest.mark.parametrize("split", [torch.tensor(3), torch.tensor([1, 3]), torch.tensor([], dtype=torch.int64)])
def test_tensor_split_reads_its_indices_on_the_cpu(split):
    assert assert_as_cpu(lambda x: x.tensor_split(split), counted(5, 2))
    assert assert_as_cpu(lambda x: x.tensor_split(split, dim=1), counted(2, 5))
    x = counted(5, 2).to(DEVICE)
    with pytest.raises(RuntimeError, match="tensor_split expected tensor_indices_or_sections to be on cpu"):
        x.tensor_split(split.to(DEVICE))


def test_as_strided_of_a_view_sees_the_memory_of_its_base():
    def reach(x: torch.Tensor) -> list[torch.Tensor]:
        part = x[1:3]
        return [part.as_strided((2, 2), (1, 2)), part.as_strided((3,), (2,), 0), part.as_strided((2, 2), (2, 1), 1)]

    assert assert_as_cpu(reach, counted(10))


def test_gradients_of_as_strided_of_a_view_equal_the_cpu():
    def gradient(x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        y = (x * 2)[1:7].as_strided((3, 2), (1, 2), 0)
        (y * torch.arange(6.0).reshape(3, 2).to(x.device)).sum().backward()
        assert x.grad is not None
        return x.grad

    assert assert_as_cpu(gradient, counted(10))
