"""Quantized tensors: what the CPU does with them, the device does."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from results import tensor_pairs

pytestmark = pytest.mark.any_device

X = torch.linspace(-1, 2, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)


def per_tensor(x: torch.Tensor, dtype: torch.dtype = torch.quint8) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.05, 20 if dtype is torch.quint8 else 0, dtype)


def per_channel(x: torch.Tensor, dtype: torch.dtype = torch.qint8, axis: int = 1) -> torch.Tensor:
    channels = x.shape[axis]
    scales = torch.linspace(0.02, 0.07, channels, dtype=torch.float64, device=x.device)
    return torch.quantize_per_channel(x, scales, torch.arange(channels, device=x.device), axis, dtype)


def per_channel_float(x: torch.Tensor) -> torch.Tensor:
    scales = torch.linspace(0.1, 0.3, x.shape[0], device=x.device)
    zeros = torch.linspace(-1, 1, x.shape[0], device=x.device)
    return torch.quantize_per_channel(x, scales, zeros, 0, torch.quint4x2)


def assert_same(got: Any, expected: Any) -> None:
    """The device's results against the CPU's: kind, scales, integers."""
    for g, e in tensor_pairs(got, expected):
        assert_same_tensor(g, e)


def assert_same_tensor(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.shape == expected.shape and got.stride() == expected.stride()
    if not expected.is_quantized:
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)
        return
    assert got.qscheme() == expected.qscheme()
    if expected.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        assert got.q_scale() == expected.q_scale() and got.q_zero_point() == expected.q_zero_point()
    else:
        assert got.q_per_channel_axis() == expected.q_per_channel_axis()
        assert_same(got.q_per_channel_scales(), expected.q_per_channel_scales())
        assert_same(got.q_per_channel_zero_points(), expected.q_per_channel_zero_points())
    assert_same(got.dequantize(), expected.dequantize())


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "quint8": per_tensor,
    "qint8": lambda x: per_tensor(x, torch.qint8),
    "qint32": lambda x: per_tensor(x, torch.qint32),
    "channels": per_channel,
    "channels-first": lambda x: per_channel(x, torch.quint8, axis=0),
    "quint4x2": lambda x: per_channel_float(x.flatten(1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_quantizing_on_the_device_equals_quantizing_on_the_cpu(kind: str) -> None:
    assert_same(KINDS[kind](X.to(DEVICE)), KINDS[kind](X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_copies_keep_integers_and_scales(kind: str, device: str) -> None:
    expected = KINDS[kind](X)
    there = expected.to(device)
    assert there.device == torch.device(device)
    assert_same(there, expected)
    back = there.cpu()
    assert torch.equal(back.dequantize(), expected.dequantize()) and back.qscheme() == expected.qscheme()
    assert_same(there.to(f"{DEVICE}:0").to(f"{DEVICE}:1"), expected)
    if kind != "quint4x2":  # the CPU does not clone these
        assert_same(there.clone(), expected)
        assert_same(copy.deepcopy(there), expected)


@pytest.mark.openreg_only
@pytest.mark.parametrize("kind", KINDS)
def test_printing_shows_the_device_and_the_scheme(kind: str) -> None:
    x = KINDS[kind](X)
    text = repr(x.to(DEVICE))
    assert "device='openreg:0'" in text
    assert text.replace(", device='openreg:0'", "").split() == repr(x).split()


@pytest.mark.openreg_only
def test_a_part_of_a_packed_tensor_is_not_copied():
    source, destination = (
        torch._empty_affine_quantized([8], scale=1.0, zero_point=0, dtype=torch.quint4x2, device=DEVICE)
        for _ in range(2)
    )
    destination.copy_(source)
    with pytest.raises(RuntimeError, match=r"openreg: .*can only be copied as a whole"):
        destination[2:].copy_(source[2:])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "quint4x2"])
def test_save_and_load(kind: str) -> None:
    expected = KINDS[kind](X)
    buffer = io.BytesIO()
    torch.save(expected.to(f"{DEVICE}:1"), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert loaded.device == torch.device(f"{DEVICE}:1")
    assert_same(loaded, expected)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, map_location="cpu").int_repr(), expected.int_repr())


def linear(q: torch.Tensor) -> Any:
    weight = torch.quantize_per_tensor(torch.linspace(-1, 1, 12).reshape(3, 4).to(q.device), 0.02, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.arange(3.0, device=q.device))
    return torch.ops.quantized.linear(q, packed, 0.1, 10), torch.ops.quantized.linear_unpack(packed)[1].cpu().tolist()


def convolution(q: torch.Tensor) -> torch.Tensor:
    weight = torch.quantize_per_tensor(
        torch.linspace(-1, 1, 2 * 3 * 3 * 3).reshape(2, 3, 3, 3).to(q.device), 0.02, 0, torch.qint8
    )
    packed = torch.ops.quantized.conv2d_prepack(weight, None, [1, 1], [1, 1], [1, 1], 1)
    result: torch.Tensor = torch.ops.quantized.conv2d(q, packed, 0.2, 5)
    return result


def in_place(change: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(q: torch.Tensor) -> torch.Tensor:
        q = q.clone()
        change(q)
        return q

    return run


def set_a_row(q: torch.Tensor) -> None:
    q[0] = 0.5


def index_put(q: torch.Tensor) -> None:
    q[torch.tensor([1, 0], device=q.device)] = torch.linspace(0, 1, 4, device=q.device)


OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "int_repr": lambda q: q.int_repr(),
    "dequantize": lambda q: q.dequantize(),
    "dequantize-list": lambda q: torch.dequantize([q, q]),
    "q_scale": lambda q: (q.q_scale(), q.q_zero_point(), q.qscheme()),
    "permute": lambda q: q.permute(0, 2, 3, 1),
    "channels-last": lambda q: q.contiguous(memory_format=torch.channels_last),
    "reshape": lambda q: q.permute(1, 0, 2, 3).reshape(3, -1),
    "view-select": lambda q: q.view(6, 16)[2:, 3],
    "unsqueeze": lambda q: q.unsqueeze(1).squeeze(1).squeeze(),
    "flip": lambda q: q.flip(0),
    "cat": lambda q: torch.cat([q, q], 1),
    "relu": lambda q: q.relu(),
    "relu_": in_place(lambda q: q.relu_()),
    "clamp": lambda q: q.clamp(0.0, 1.0),
    "hardtanh": lambda q: F.hardtanh(q),
    "leaky_relu": lambda q: F.leaky_relu(q, 0.1),
    "sigmoid": lambda q: q.sigmoid(),
    "tanh": lambda q: q.tanh(),
    "gelu": lambda q: F.gelu(q),
    "hardsigmoid": lambda q: F.hardsigmoid(q),
    "threshold": lambda q: F.threshold(q, 0.1, 0.0),
    "mean": lambda q: q.mean([2, 3]),
    "std": lambda q: q.std([2, 3]),
    "max": lambda q: q.max(),
    "min-dim": lambda q: q.min(2),
    "sort": lambda q: torch.sort(q, dim=2, stable=True),
    "topk": lambda q: q.topk(2),
    "greater": lambda q: q > 0.25,
    "equal": lambda q: torch.equal(q, q.clone()),
    "index": lambda q: q[torch.tensor([1, 0], device=q.device)],
    "index_select": lambda q: q.index_select(1, torch.tensor([2, 0], device=q.device)),
    "fill_": in_place(lambda q: q.fill_(0.5)),
    "row": in_place(set_a_row),
    "index_put_": in_place(index_put),
    "masked_fill_": in_place(lambda q: q.masked_fill_(torch.ones(4, dtype=torch.bool, device=q.device), 1.0)),
    "copy_-float": in_place(lambda q: q.copy_(torch.linspace(0, 1, q.numel(), device=q.device).view(q.shape))),
    "resize_": in_place(lambda q: q.resize_(2, 48)),
    "max_pool2d": lambda q: F.max_pool2d(q, 2),
    "avg_pool2d": lambda q: F.avg_pool2d(q, 2),
    "adaptive_avg_pool2d": lambda q: F.adaptive_avg_pool2d(q, 2),
    "interpolate": lambda q: F.interpolate(q, scale_factor=2),
    "interpolate-bilinear": lambda q: F.interpolate(q, scale_factor=2.0, mode="bilinear"),
    "pad": lambda q: F.pad(q, (1, 1, 1, 1), mode="reflect"),
    "channel_shuffle": lambda q: torch.channel_shuffle(q, 3),
    "add": lambda q: torch.ops.quantized.add(q, q, 0.1, 3),
    "mul": lambda q: torch.ops.quantized.mul(q, q, 0.1, 3),
    "quantized-cat": lambda q: torch.ops.quantized.cat([q, q], 0, 0.1, 1),
    "batch_norm": lambda q: torch.ops.quantized.batch_norm2d(
        q, *(torch.ones(3, device=q.device) for _ in range(4)), 1e-5, 0.1, 4
    ),
    "linear": linear,
    "conv2d": convolution,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_quantized_tensors_equal_the_cpu(name: str) -> None:
    expected = OPERATORS[name](per_tensor(X))
    assert_same(OPERATORS[name](per_tensor(X).to(DEVICE)), expected)


def test_operators_take_tensors_quantized_by_channels() -> None:
    for run in (
        lambda q: q.int_repr(),
        lambda q: q.dequantize(),
        lambda q: q.contiguous(memory_format=torch.channels_last),
        in_place(lambda q: q.copy_(torch.linspace(0, 1, q.numel(), device=q.device).view(q.shape))),
        in_place(lambda q: q.copy_(per_channel(torch.ones_like(X), torch.qint8).to(q.device))),
    ):
        assert_same(run(per_channel(X).to(DEVICE)), run(per_channel(X)))


def test_views_of_a_quantized_tensor_share_its_memory() -> None:
    q = per_tensor(X).to(DEVICE)
    q[1].fill_(1.0)
    assert q[1].dequantize().eq(1.0).all()
    assert torch.equal(q[0].int_repr().cpu(), per_tensor(X)[0].int_repr())


def test_fake_quantization_trains_as_on_the_cpu() -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        x = X.to(device).requires_grad_()
        scale = torch.full((3,), 0.05, device=device, requires_grad=True)
        zero = torch.zeros(3, device=device, requires_grad=True)
        by_tensor = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        learned = torch._fake_quantize_learnable_per_channel_affine(by_tensor, scale, zero, 1, -128, 127, 1.0)
        learned.square().sum().backward()
        return [t.grad.cpu() for t in (x, scale, zero) if t.grad is not None]

    got, expected = gradients(DEVICE), gradients("cpu")
    assert len(got) == 3
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda q: q.cos(), NotImplementedError, "aten::cos.out"),
        (lambda q: q.copy_(per_channel(X).to(DEVICE)), RuntimeError, "Quantized Copy only works with same qscheme"),
        (
            lambda q: torch.zeros(X.shape, device=DEVICE).copy_(q),
            RuntimeError,
            "non-quantized Tensor is not allowed",
        ),
        (lambda q: q.copy_(per_tensor(X, torch.qint8).to(DEVICE)), RuntimeError, "self.scalar_type"),
        (lambda q: q.q_per_channel_axis(), RuntimeError, "Expected quantizer->qscheme"),
        (lambda q: torch.ops.quantized.add(q, per_tensor(X), 0.1, 0), RuntimeError, "same device"),
        (lambda q: q.numpy(), TypeError, DEVICE),
    ],
    ids=["no-kernel", "other-scheme", "to-float", "other-dtype", "no-channels", "two-devices", "numpy"],
)
def test_errors_are_those_of_the_cpu(
    call: Callable[[torch.Tensor], Any], error: type[Exception], sentence: str
) -> None:
    q = per_tensor(X).to(DEVICE)
    with pytest.raises(error, match=sentence):
        call(q)
    assert_same(q, per_tensor(X))
