"""Expanded and overlapping tensors as inputs of selections: the values are those of contiguous copies, also where the
CPU's own kernels read past their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device

Selection = Callable[..., Any]

SELECTIONS: dict[str, Selection] = {
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "masked.median": lambda x, *args, **kwargs: (torch.masked.median(x, *args, **kwargs),),
    "kthvalue": lambda x, *args, **kwargs: torch.kthvalue(x, 1, *args, **kwargs),
    "mode": torch.mode,
    "quantile": lambda x, *args, **kwargs: (torch.quantile(x.double(), 0.5, *args, **kwargs),),
}
# Elements that are not part of the tensor are smaller or greater than those that are, so that they show.
MEMORY = [*range(100, 124), *range(-100, 0), *range(1000, 1024)]


def repeated(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    memory = torch.tensor(MEMORY, dtype=dtype, device=DEVICE)
    return {
        "rows": memory[:24].expand(4, 24),
        "columns": memory[:24, None].expand(24, 4),
        "one": memory[23].expand(5),
        "planes": memory[:24].view(4, 6).unsqueeze(1).expand(4, 3, 6),
        "windows": memory.as_strided((20, 5), (1, 1)),
    }


def equal(got: Any, expected: Any) -> bool:
    return all(torch.equal(g.cpu(), e.cpu()) for g, e in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection_of_repeated_elements(name):
    select = SELECTIONS[name]
    dtypes = [torch.float32] if name == "masked.median" else [torch.float32, torch.int64]  # the first takes no integers
    for layout, x in [each for dtype in dtypes for each in repeated(dtype).items()]:
        for dim in range(-1, x.dim()):
            for keepdim in (False, True):
                got, expected = (select(each, dim, keepdim=keepdim) for each in (x, x.contiguous()))
                assert equal(got, expected), (layout, dim)


@pytest.mark.parametrize("name", ["median", "nanmedian", "kthvalue", "mode"])
def test_selection_with_outputs(name):
    select = SELECTIONS[name]
    for x in repeated().values():
        outs = select(x.cpu().contiguous(), 0)
        there = tuple(torch.zeros_like(out, device=DEVICE) for out in outs)
        select(x, 0, out=there)
        assert equal(there, outs)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_all_elements(name):
    for x in repeated().values():
        assert equal([SELECTIONS[name](x)], [SELECTIONS[name](x.contiguous())])


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_gradient(name):
    base = torch.tensor([3.0, 1.0, 2.0], device=DEVICE, requires_grad=True)
    SELECTIONS[name](base.expand(4, 3), 0)[0].sum().backward()
    assert base.grad is not None and base.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.openreg_only
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_in_a_graph(name):
    base = torch.zeros(24, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        values, indices = SELECTIONS[name](base.expand(4, 24), 0)
    for k in (1.0, 2.0):
        base.fill_(k)
        graph.replay()
        assert values.tolist() == [k] * 24 and int(indices.max()) < 4


@pytest.mark.full
def test_compiled():
    @torch.compile
    def medians(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (x + 1).expand(4, 24)
        return torch.median(rows, 0)[0], torch.nanmedian(rows, 0)[0]

    x = torch.arange(24.0, device=DEVICE)
    assert all(torch.equal(median, x + 1) for median in medians(x))


def test_attention_of_a_query_of_windows():
    torch.manual_seed(0)
    query = torch.randn(16).as_strided((2, 2, 3, 8), (1, 2, 1, 1))
    key, value = torch.randn(2, 2, 2, 6, 8).unbind()
    expected = torch.nn.functional.scaled_dot_product_attention(query.contiguous(), key, value)
    there = torch.empty(16, device=DEVICE).copy_(query.as_strided((16,), (1,))).as_strided(query.shape, query.stride())
    got = torch.nn.functional.scaled_dot_product_attention(there, key.to(DEVICE), value.to(DEVICE))
    torch.testing.assert_close(got.cpu(), expected)
