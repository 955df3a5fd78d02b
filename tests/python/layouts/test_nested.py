"""Nested tensors of strided layout (of jagged ones, PyTorch makes composites of strided tensors)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from results import tensor_pairs

pytestmark = pytest.mark.any_device

PARTS = [torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 2, 6).reshape(2, 3)]


def nested(device: str, requires_grad: bool = False) -> torch.Tensor:
    return torch.nested.nested_tensor(PARTS, device=device, requires_grad=requires_grad)


def assert_same(got: Any, expected: Any) -> None:
    for g, e in tensor_pairs(got, expected):
        assert g.is_nested == e.is_nested and g.layout == e.layout
        if e.is_nested:
            assert_same(list(g.unbind()), list(e.unbind()))
        else:
            assert g.stride() == e.stride()
            torch.testing.assert_close(g.cpu(), e)


@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_copies_and_printing(device: str) -> None:
    expected = nested("cpu")
    there = expected.to(device)
    assert there.device == torch.device(device) and there.is_nested
    assert_same(there, expected)
    back = there.cpu()
    assert back.device.type == "cpu"
    assert all(torch.equal(a, b) for a, b in zip(back.unbind(), PARTS, strict=True))
    assert_same(there.to(f"{DEVICE}:0").to(f"{DEVICE}:1"), expected)
    assert_same(there.double(), expected.double())
    assert repr(there).replace(f", device='{device}'", "").split() == repr(expected).split()


def test_copies_to_and_from_tensors_that_are_there() -> None:
    device, host = nested(DEVICE), nested("cpu") + 1
    assert device.copy_(host) is device
    assert_same(device, host)
    host.copy_(device + 1)
    assert_same(device + 1, host)


def test_save_and_load() -> None:
    buffer = io.BytesIO()
    torch.save(nested(f"{DEVICE}:1"), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert loaded.device == torch.device(f"{DEVICE}:1")
    assert_same(loaded, nested("cpu"))


WEIGHT = torch.linspace(-1, 1, 15).reshape(5, 3)

OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "size": lambda n: (n.dim(), n.size(0), n.size(2), n.numel(), n.is_contiguous()),
    "add": lambda n: n + n,
    "sub": lambda n: n - n * 2,
    "mul-scalar": lambda n: n * 2.5,
    "div": lambda n: n / 3,
    "mul_": lambda n: n.clone().mul_(2),
    "zero_": lambda n: n.clone().zero_(),
    "fill_": lambda n: n.clone().fill_(2),
    "neg": lambda n: -n,
    "abs": lambda n: n.abs(),
    "relu": lambda n: n.relu(),
    "gelu": lambda n: F.gelu(n),
    "silu": lambda n: F.silu(n),
    "tanh": lambda n: n.tanh(),
    "sin": lambda n: n.sin(),
    "softmax": lambda n: n.softmax(-1),
    "layer_norm": lambda n: F.layer_norm(n, (3,), torch.ones(3, device=n.device), torch.zeros(3, device=n.device)),
    "linear": lambda n: F.linear(n, WEIGHT.to(n.device), torch.ones(5, device=n.device)),
    "matmul": lambda n: n @ n.transpose(1, 2),
    "bmm": lambda n: torch.bmm(n, n.transpose(1, 2).contiguous()),
    "sum": lambda n: n.sum(-1, keepdim=True),
    "greater": lambda n: n > 0,
    "equal": lambda n: n == 0.5,
    "masked_fill": lambda n: n.masked_fill(n > 0, 7.0),
    "where": lambda n: torch.where(n > 0, torch.zeros((), device=n.device), n),
    "isnan": lambda n: n.isnan(),
    "logical_not": lambda n: (n > 0).logical_not(),
    "select": lambda n: n[1],
    "select-inner": lambda n: n.select(2, 1),
    "narrow": lambda n: n.narrow(0, 0, 1),
    "unbind": lambda n: n.unbind(),
    "split": lambda n: n.split([1, 2], -1),
    "chunk": lambda n: n.chunk(3, -1),
    "squeeze": lambda n: n.unsqueeze(1).squeeze(1),
    "view": lambda n: n.view(2, -1, 3, 1),
    "cat": lambda n: torch.cat([n, n]),
    "values": lambda n: n.values(),
    "to_padded_tensor": lambda n: n.to_padded_tensor(9.0),
    "to_padded_tensor-size": lambda n: n.to_padded_tensor(9.0, (2, 5, 4)),
    "from-padded": lambda n: torch._nested_tensor_from_mask(
        n.to_padded_tensor(0.0), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool, device=n.device)
    ),
    "embedding": lambda n: F.embedding(
        torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([0])], device=n.device), WEIGHT.to(n.device)
    ),
    "ones_like": lambda n: torch.ones_like(n),
    "dropout-eval": lambda n: F.dropout(n, 0.5, training=False),
    "attention": lambda n: F.scaled_dot_product_attention(*(n.unsqueeze(1) for _ in range(3))),
    "as-nested": lambda n: torch.nested.as_nested_tensor(list(n.unbind())),
    "same-size": lambda n: torch._nested_tensor_from_tensor_list(list(n.unbind())).is_same_size(n),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_nested_tensors_equal_the_cpu(name: str) -> None:
    expected = OPERATORS[name](nested("cpu"))
    assert_same(OPERATORS[name](nested(DEVICE)), expected)


DIFFERENTIABLE = [
    "add", "mul-scalar", "div", "neg", "relu", "gelu", "silu", "softmax", "layer_norm", "linear", "matmul",
    "sum", "select", "unbind", "values", "to_padded_tensor", "attention",
]  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_through_nested_tensors_equal_the_cpu(name: str) -> None:
    def gradient(device: str) -> torch.Tensor:
        parts = [part.to(device, copy=True).requires_grad_() for part in PARTS]
        result = OPERATORS[name](torch.nested.as_nested_tensor(parts))
        outputs = result if isinstance(result, tuple) else (result,)
        outputs = [part for each in outputs for part in (each.unbind() if each.is_nested else [each])]
        total = torch.stack([output.square().sum() for output in outputs]).sum()
        total.backward()
        return torch.cat([part.grad.flatten() for part in parts if part.grad is not None])

    expected = gradient("cpu")
    assert expected.numel() > 0
    got = gradient(DEVICE)
    assert got.device.type == DEVICE
    torch.testing.assert_close(got.cpu(), expected)


def test_views_of_a_nested_tensor_share_its_memory() -> None:
    n = nested(DEVICE)
    n[1].fill_(5.0)
    n.transpose(1, 2)[0].zero_()
    assert n.unbind()[1].eq(5).all() and n.unbind()[0].eq(0).all()


@pytest.mark.openreg_only
def test_random_numbers_come_from_the_devices_generator() -> None:
    torch.manual_seed(3)
    state = torch.openreg.get_rng_state()
    first = nested(DEVICE).normal_()
    assert not torch.equal(torch.openreg.get_rng_state(), state)
    torch.manual_seed(3)
    assert_same(nested(DEVICE).normal_(), first.cpu())


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda n: n + nested("cpu"), RuntimeError, "device"),
        (lambda n: n.pin_memory(), NotImplementedError, "_pin_memory"),
        (lambda n: torch.cumsum(n, 0), NotImplementedError, "aten::cumsum"),
        (lambda n: n.size(1), RuntimeError, "irregular"),
        (lambda n: n.view(3, -1, 3), RuntimeError, "view"),
    ],
    ids=["two-devices", "pin", "no-kernel", "irregular", "view"],
)
def test_errors_are_clear_and_leave_the_tensor_alone(
    call: Callable[[torch.Tensor], Any], error: type[Exception], sentence: str
) -> None:
    n = nested(DEVICE)
    with pytest.raises(error, match=sentence):
        call(n)
    assert_same(n, nested("cpu"))


@pytest.mark.parametrize("total", [None, 4])
def test_rows_of_a_padded_tensor_are_as_many_as_offsets_say(total: int | None) -> None:
    def rows(padded: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._padded_dense_to_jagged_forward(padded, [offsets], total)

    padded, offsets = torch.arange(24.0).view(2, 3, 4), torch.tensor([0, 1, 4])
    assert_same(rows(padded.to(DEVICE), offsets.to(DEVICE)), rows(padded, offsets))
