"""Layers of real networks: forward and backward equal the CPU's, and no operator makes the host wait.

Layers with masks and lengths, and models made of several, are in test_models.py.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch import nn
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2)


def call(module, *inputs):
    return module(*inputs)


CASES = {
    "LSTM": (lambda: nn.LSTM(5, 7, num_layers=2, bidirectional=True), call, [(4, 3, 5)]),
    "LSTM without bias": (lambda: nn.LSTM(5, 7, bias=False, batch_first=True), call, [(4, 3, 5)]),
    "LSTM with projections": (lambda: nn.LSTM(5, 7, proj_size=3), call, [(4, 3, 5)]),
    "LSTMCell": (lambda: nn.LSTMCell(5, 7), call, [(3, 5)]),
    "GRU": (lambda: nn.GRU(5, 7, num_layers=2, bidirectional=True), call, [(4, 3, 5)]),
    "GRU without bias": (lambda: nn.GRU(5, 7, bias=False), call, [(4, 3, 5)]),
    "RNN": (lambda: nn.RNN(5, 7, num_layers=2), call, [(4, 3, 5)]),
    "TransformerEncoder": (encoder, call, [(2, 6, 16)]),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2),
        call,
        [(2, 6, 16), (2, 5, 16)],
    ),
    "Conv1d, grouped": (lambda: nn.Conv1d(3, 6, 3, groups=3), call, [(2, 3, 8)]),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), call, [(2, 3, 8, 8)]),
    "Conv2d, dilated": (lambda: nn.Conv2d(4, 6, 3, dilation=2, groups=2, bias=False), call, [(2, 4, 9, 9)]),
    "Conv2d, depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), call, [(2, 4, 9, 9)]),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), call, [(1, 2, 4, 4, 4)]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), call, [(2, 3, 5, 5)]),
    "ConvTranspose1d, grouped": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), call, [(2, 4, 5)]),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, padding=1), call, [(1, 2, 4, 4, 4)]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), call, [(2, 3, 4, 4)]),
    "LayerNorm": (lambda: nn.LayerNorm(8), call, [(2, 8)]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), call, [(2, 4, 4)]),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True), call, [(2, 3, 4, 4)]),
    "RMSNorm": (lambda: nn.RMSNorm(8), call, [(2, 8)]),
    "pooling": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), call, [(2, 3, 8, 8)]),
    "upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), call, [(2, 3, 4, 4)]),
    "attention": (
        nn.Identity,
        lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 2, 5, 8)] * 3,
    ),
}


def forward_and_backward(module, run, inputs):
    """Outputs, and gradients of inputs and parameters."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    leaves = torch.utils._pytree.tree_leaves(run(module, *inputs))
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    weights = [torch.arange(o.numel(), device=o.device, dtype=o.dtype).reshape(o.shape).sin() for o in outputs]
    torch.autograd.backward(outputs, weights)
    return [o.detach() for o in outputs] + [x.grad for x in inputs] + [p.grad for p in module.parameters()]


@pytest.mark.openreg_only
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", CASES)
def test_equals_the_cpu_without_waiting(name):
    make, run, shapes = CASES[name]
    torch.manual_seed(0)
    module = make()
    inputs = [torch.randn(shape) for shape in shapes]
    expected = forward_and_backward(copy.deepcopy(module), run, inputs)
    device_module = module.to(DEVICE)
    device_inputs = [x.to(DEVICE) for x in inputs]
    torch.openreg.reset_launch_stats()
    got = forward_and_backward(device_module, run, device_inputs)
    stats = torch.openreg.launch_stats()
    assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats
    for g, e in zip(got, expected, strict=True):
        assert_close(g.cpu(), e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "cell",
    [
        lambda d: torch.ops.aten._thnn_fused_lstm_cell(*[torch.ones(2, n, device=d) for n in (8, 12, 2)]),
        lambda d: torch.ops.aten._thnn_fused_lstm_cell(*[torch.ones(2, n, device=d) for n in (8, 8, 3)]),
        lambda d: torch.ops.aten._thnn_fused_gru_cell(*[torch.ones(n, 6, device=d) for n in (2, 2, 2)]),
        lambda d: torch.ops.aten._thnn_fused_gru_cell(
            torch.ones(2, 6, device=d),
            torch.ones(2, 6, device=d),
            torch.ones(2, 2, device=d),
            torch.ones(5, device=d),
            torch.ones(6, device=d),
        ),
    ],
)
def test_cells_of_wrong_shapes_say_what_they_expect(cell):
    with pytest.raises(RuntimeError, match="_cell: expected"):
        cell(DEVICE)


# Networks, with a batch of inputs and what they are trained with.
STEPS = {
    "MLP": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)),
        (6, 8),
        torch.optim.AdamW,
        {},
    ),
    "CNN": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)
        ),
        (6, 1, 8, 8),
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), 2),
            nn.Flatten(),
            nn.Linear(80, 4),
        ),
        (6, 5, 16),
        torch.optim.AdamW,
        {},
    ),
    "LSTM": (lambda: LastOutput(nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 4)), (6, 3, 5), torch.optim.Adam, {}),
}


class LastOutput(nn.Module):
    """What a recurrent network says after the last step."""

    def __init__(self, recurrent: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


@pytest.mark.openreg_only
@pytest.mark.parametrize(
    "implementation", [{}, {"foreach": True}, {"fused": True}], ids=["default", "foreach", "fused"]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_never_makes_the_host_wait(name, implementation):
    make, shape, optimizer_class, options = STEPS[name]
    torch.manual_seed(0)
    model = make().to(DEVICE)
    optimizer = optimizer_class(model.parameters(), lr=0.05, **options, **implementation)
    x = torch.randn(shape, device=DEVICE)
    target = torch.randint(0, 4, (shape[0],), device=DEVICE)
    losses = []
    torch.openreg.reset_launch_stats()
    with no_waits():
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    stats = torch.openreg.launch_stats()
    assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats
    assert losses[-1].item() < losses[0].item()


def significant_strides(x: torch.Tensor) -> list[int]:
    """Of dimensions with more than one element; oneDNN chooses the others by the number of threads of the caller."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 4, 3, groups=4, bias=False),
        nn.ConvTranspose2d(4, 6, 2, stride=2),
        nn.Sequential(
            nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(None, 2)
        ),
    ],
    ids=["convolution", "depthwise", "transposed", "a block"],
)
@pytest.mark.parametrize("channels_last", ["input", "weights", "both"])
def test_channels_last_goes_where_it_goes_on_the_cpu(layer, channels_last):
    def run(device):
        module = copy.deepcopy(layer).to(device)
        if channels_last != "input":
            module.to(memory_format=torch.channels_last)
        x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).to(device)
        if channels_last != "weights":
            x = x.to(memory_format=torch.channels_last)
        x.requires_grad_()
        y = module(x)
        y.square().mean().backward()  # the terms of a sum's gradients are large, and cancel
        return [y.detach(), x.grad, *(p.grad for p in module.parameters())]

    for got, expected in zip(run(DEVICE), run("cpu"), strict=True):
        assert_close(got.cpu(), expected, rtol=1e-4, atol=2e-6)
        assert significant_strides(got) == significant_strides(expected)
