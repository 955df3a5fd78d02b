"""`out=` with strides that the CPU's kernels do not respect, where the device's result is right as on a GPU; and calls
on tensors without elements that end a program on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from waits import no_waits

pytestmark = pytest.mark.any_device

Make = Callable[..., Any]

FILLER = -77.0
X = torch.linspace(-3, 4, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
LU = torch.linalg.lu_factor(X.contiguous() + torch.eye(4) * 9)

CALLS: dict[str, tuple[Make, tuple[Any, ...]]] = {
    "tril": (torch.tril, (X,)),
    "triu": (torch.triu, (X,)),
    "gelu": (torch._C._nn.gelu, (X,)),  # type: ignore[attr-defined]
    "avg_pool3d": (torch._C._nn.avg_pool3d, (X, 2)),  # type: ignore[attr-defined]
    "narrow_copy": (torch.narrow_copy, (X, 2, 1, 2)),
    "lu_unpack": (torch.lu_unpack, tuple(LU)),
    "linalg.lu": (torch.linalg.lu, (X + torch.eye(4) * 9,)),
}


def transposed(like: torch.Tensor) -> torch.Tensor:
    memory = torch.full((like.numel() + 8,), FILLER, dtype=like.dtype, device=DEVICE)
    strides = torch.empty(like.shape[::-1], device="meta").permute(*range(like.dim())[::-1]).stride()
    return memory.as_strided(like.shape, strides, 4)


def gaps(like: torch.Tensor) -> torch.Tensor:
    return torch.full((*like.shape, 2), FILLER, dtype=like.dtype, device=DEVICE)[..., 1]


def memory_around(output: torch.Tensor) -> torch.Tensor:
    """All elements of the storage, with those of the output as filler."""
    output = output.detach()
    storage = torch.empty(0, dtype=output.dtype, device=output.device).set_(output.untyped_storage()).clone()
    storage.as_strided(output.shape, output.stride(), output.storage_offset()).fill_(FILLER)
    return storage.cpu()


def as_list(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("layout", [transposed, gaps])
@pytest.mark.parametrize("name", CALLS)
def test_output(name, layout):
    call, arguments = CALLS[name]
    there = [each.to(DEVICE) if isinstance(each, torch.Tensor) else each for each in arguments]
    expected = as_list(call(*arguments))
    for _ in range(2):
        outputs = [layout(each) for each in expected]
        result = call(*there, out=outputs[0] if len(outputs) == 1 else tuple(outputs))
        for got, output, right in zip(as_list(result), outputs, expected, strict=True):
            assert got is output
            torch.testing.assert_close(output.cpu(), right)
            assert (memory_around(output) == FILLER).all()


@pytest.mark.openreg_only
def test_output_in_a_graph():
    x = X.to(DEVICE)
    outputs = [transposed(X), gaps(X)]
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        torch.tril(x, out=outputs[0])
        torch._C._nn.gelu(x, out=outputs[1])
    for k in (1, 2, 3):
        x.copy_(X * k)
        graph.replay()
        assert torch.equal(outputs[0].cpu(), torch.tril(X * k))
        torch.testing.assert_close(outputs[1].cpu(), F.gelu(X * k))


def test_output_of_another_dtype_is_refused():
    with pytest.raises(RuntimeError, match="dtype"):
        torch.tril(X.to(DEVICE), out=transposed(X).to(torch.float64).transpose(0, 1))
    with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
        torch.narrow_copy(X.to(DEVICE), 2, 1, 2, out=torch.ones(4, 4, device=DEVICE).t().double())


def in_place_functions() -> list[str]:
    """Of two tensors: those of the operators' database that return what they change."""
    from torch.testing._internal.common_methods_invocations import BinaryUfuncInfo, op_db

    found = [op.inplace_variant.__name__ for op in op_db if isinstance(op, BinaryUfuncInfo) and op.inplace_variant]
    return sorted({name for name in found if hasattr(torch.Tensor, name)})


@pytest.mark.parametrize("layout", [transposed, gaps])
@pytest.mark.parametrize("name", in_place_functions())
def test_a_function_in_place_does_not_change_sizes(name, layout):
    """Some are an out form whose output is an input, which then must not be resized."""
    for dtype in (torch.float32, torch.int64, torch.bool):
        like, other = torch.ones(5, 1, dtype=dtype), torch.ones(5, 5, dtype=dtype)
        x = layout(like)
        with pytest.raises(RuntimeError) as expected:
            getattr(like, name)(other)
        with pytest.raises(RuntimeError) as error:
            getattr(x, name)(other.to(DEVICE))
        assert str(error.value) == str(expected.value) or "broadcast shape" not in str(expected.value)
        assert x.shape == (5, 1) and (x.cpu() == torch.tensor(FILLER).to(dtype)).all()


def test_gradient_of_distances_among_no_rows():
    x = torch.empty(0, 5, device=DEVICE, requires_grad=True)
    distances = F.pdist(x)
    distances.backward(torch.ones_like(distances))
    assert x.grad is not None and x.grad.shape == (0, 5)


def test_a_tensor_that_keeps_its_size_keeps_its_memory():
    x = torch.ones(1, device=DEVICE).expand(10)
    x.resize_(10)
    assert x.stride() == (0,) and x.untyped_storage().nbytes() == 4
    torch.ones(10, device=DEVICE, out=x)
    assert x.untyped_storage().nbytes() == 4


def test_rows_of_a_matrix_without_rows_are_refused_at_each_call():
    index = torch.tensor([0], device=DEVICE)
    for rows in (5, 0, 0):
        table = torch.ones(rows, 5, device=DEVICE)
        if rows:
            F.embedding(index, table)
            continue
        with pytest.raises(RuntimeError, match="axis dim should be positive") as error:
            F.embedding(index, table)
        assert not isinstance(error.value, torch.AcceleratorError)


SQUARE = torch.linspace(0.1, 0.9, 25).reshape(5, 5)
ROW = torch.linspace(-1, 1, 5)

# Operators that are no loops of PyTorch's meta classes: the output is an input.
IN_PLACE: dict[str, Callable[..., torch.Tensor]] = {
    "abs_": lambda x, *_: x.abs_(),
    "addr_": lambda x, row, _: x.addr_(row, row),
    "logical_and_": lambda x, row, _: x.logical_and_(row),
    "logical_or_": lambda x, row, _: x.logical_or_(row),
    "logical_xor_": lambda x, row, _: x.logical_xor_(row),
    "mvlgamma_": lambda x, *_: x.mvlgamma_(1),
    "angle": lambda x, *_: torch.angle(x, out=x),
    "conj_physical": lambda x, *_: torch.conj_physical(x, out=x),
    "floor_divide": lambda x, row, _: torch.floor_divide(x, row + 2, out=x),
    "householder_product": lambda x, row, _: torch.linalg.householder_product(x, row, out=x),
    "logcumsumexp": lambda x, *_: torch.logcumsumexp(x, 0, out=x),
    "logit": lambda x, *_: torch.logit(x, out=x),
    "where": lambda x, row, mask: torch.where(mask, x, row, out=x),
}


@pytest.mark.openreg_only
@pytest.mark.parametrize("layout", [transposed, gaps])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_other_strides_neither_waits_nor_ends_a_capture(name, layout):
    call = IN_PLACE[name]
    others = ROW, SQUARE > 0.5
    expected = call(SQUARE.clone(), *others)
    there = [each.to(DEVICE) for each in others]
    x, y = layout(SQUARE), layout(SQUARE)
    x.copy_(SQUARE)
    with no_waits():
        assert call(x, *there) is x
    torch.testing.assert_close(x.cpu(), expected)
    assert (memory_around(x) == FILLER).all()

    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        call(y, *there)
    y.copy_(SQUARE)
    graph.replay()
    torch.testing.assert_close(y.cpu(), expected)
