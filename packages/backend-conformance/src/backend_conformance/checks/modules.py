"""Modules: `torch.nn` forward and backward, against the CPU.

Each module gets the same parameters and inputs on both devices; results, gradients of inputs and parameters, and
buffers must agree. The tolerance allows for reduced precision in convolutions and matrix products (TF32), not for
other mistakes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check

Inputs = tuple[torch.Tensor, ...]


def floats(*shapes: tuple[int, ...]) -> Callable[[], Inputs]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def integers(high: int, *shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randint(high, shape),)


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "Linear": (lambda: nn.Linear(5, 3), floats((2, 4, 5))),
    "LinearWithoutBias": (lambda: nn.Linear(5, 3, bias=False), floats((5,))),
    "Bilinear": (lambda: nn.Bilinear(3, 4, 2), floats((5, 3), (5, 4))),
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), floats((2, 3, 9))),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3), floats((2, 3, 8, 7))),
    "Conv2dGroups": (lambda: nn.Conv2d(4, 8, 3, groups=2, dilation=2, padding=2, bias=False), floats((2, 4, 9, 9))),
    "Conv2dDepthwise": (lambda: nn.Conv2d(4, 4, (3, 1), groups=4, stride=(2, 1)), floats((1, 4, 7, 5))),
    "Conv2dSame": (lambda: nn.Conv2d(2, 2, 3, padding="same", padding_mode="reflect"), floats((2, 2, 6, 6))),
    "Conv2dUnbatched": (lambda: nn.Conv2d(2, 3, 2), floats((2, 5, 5))),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), floats((1, 2, 4, 5, 4))),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2), floats((2, 3, 5))),
    "ConvTranspose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        floats((2, 4, 5, 5)),
    ),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 2, 2), floats((1, 2, 3, 3, 3))),
    "Unfold": (lambda: nn.Unfold((2, 3), padding=1), floats((2, 3, 5, 6))),
    "Fold": (lambda: nn.Fold((4, 5), (2, 2)), floats((2, 8, 12))),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), floats((6, 4))),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3, momentum=0.3), floats((4, 3, 5, 5))),
    "BatchNorm2dEval": (lambda: nn.BatchNorm2d(3).eval(), floats((4, 3, 5, 5))),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2, affine=False), floats((2, 2, 3, 3, 3))),
    "LayerNorm": (lambda: nn.LayerNorm((3, 4)), floats((2, 3, 4))),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), floats((3, 4, 5))),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), floats((2, 3, 4, 4))),
    "RMSNorm": (lambda: nn.RMSNorm(6), floats((4, 6))),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), floats((2, 4, 3, 3))),
    "Embedding": (lambda: nn.Embedding(7, 4, padding_idx=2), integers(7, 3, 5)),
    "EmbeddingBagMean": (lambda: nn.EmbeddingBag(7, 4, mode="mean"), integers(7, 3, 5)),
    "EmbeddingBagMax": (lambda: nn.EmbeddingBag(7, 4, mode="max"), integers(7, 3, 5)),
    "RNN": (lambda: nn.RNN(3, 4, num_layers=2, nonlinearity="relu"), floats((5, 2, 3))),
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), floats((5, 2, 3))),
    "LSTMBatchFirst": (lambda: nn.LSTM(3, 4, batch_first=True, proj_size=2), floats((2, 5, 3))),
    "GRU": (lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True), floats((2, 5, 3))),
    "RNNCell": (lambda: nn.RNNCell(3, 4), floats((2, 3))),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), floats((2, 3))),
    "GRUCell": (lambda: nn.GRUCell(3, 4, bias=False), floats((2, 3))),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        floats((2, 5, 8), (2, 4, 8), (2, 4, 8)),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        floats((2, 5, 8)),
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0),
        floats((4, 2, 8), (5, 2, 8)),
    ),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), floats((2, 3, 8, 7))),
    "MaxPool2dIndices": (lambda: nn.MaxPool2d(2, return_indices=True), floats((2, 3, 6, 6))),
    "MaxPool1d": (lambda: nn.MaxPool1d(2, dilation=2), floats((2, 3, 9))),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), floats((1, 2, 4, 4, 4))),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, stride=2, count_include_pad=False, padding=1), floats((2, 3, 8, 7))),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), floats((1, 2, 4, 4, 4))),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), floats((1, 2, 6, 6))),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), floats((2, 3, 7, 5))),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), floats((2, 3, 7, 5))),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(4), floats((2, 3, 7))),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), floats((2, 3, 4, 5))),
    "UpsampleBilinear": (lambda: nn.Upsample(size=(7, 9), mode="bilinear", align_corners=True), floats((2, 3, 4, 5))),
    "UpsampleBicubic": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), floats((1, 2, 6, 6))),
    "UpsampleLinear": (lambda: nn.Upsample(scale_factor=2, mode="linear"), floats((2, 3, 5))),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), floats((2, 8, 3, 3))),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), floats((2, 4, 3, 3))),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((1, 2, 0, 1)), floats((2, 3, 4, 5))),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(2), floats((2, 3, 4, 5))),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, -1, 2, 0)), floats((2, 3, 4, 5))),
    "CircularPad1d": (lambda: nn.CircularPad1d(2), floats((2, 3, 5))),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(dim=1), floats((4, 5), (4, 5))),
    "PairwiseDistance": (lambda: nn.PairwiseDistance(), floats((4, 5), (4, 5))),
    "PReLU": (lambda: nn.PReLU(3), floats((2, 3, 4))),
    "Softmax": (lambda: nn.Softmax(dim=1), floats((3, 4, 2))),
    "LogSoftmax": (lambda: nn.LogSoftmax(dim=-1), floats((3, 7))),
    "Flatten": (lambda: nn.Flatten(), floats((2, 3, 4))),
    "GLU": (lambda: nn.GLU(), floats((3, 8))),
    **{
        name: (getattr(nn, name), floats((3, 40)))
        for name in (
            "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign LogSigmoid Hardtanh "
            "Hardswish Hardsigmoid Hardshrink Softshrink Tanhshrink"
        ).split()
    },
}


def run(module: nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """What a module computes: results, gradients, and buffers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output: Any = module(*inputs)
    results: list[torch.Tensor] = []

    def collect(each: Any) -> None:
        if isinstance(each, torch.Tensor):
            results.append(each)
        elif isinstance(each, tuple):
            for part in each:
                collect(part)

    collect(output)
    found = {f"result {number}": each for number, each in enumerate(results)}
    # Different weights, so that gradients of permuted elements differ.
    loss = sum(
        (each * torch.linspace(0.5, 1.5, each.numel()).view(each.shape).to(each.device)).sum()
        for each in results
        if each.requires_grad
    )
    if isinstance(loss, torch.Tensor):
        loss.backward()
    found |= {f"gradient of input {n}": x.grad for n, x in enumerate(inputs) if x.grad is not None}
    found |= {f"gradient of {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
    return found | dict(module.named_buffers())


@check(level=Level.TRAINS, hook="the operators of the module", cases=tuple(MODULES))
def module_follows_the_cpu(device: Device, case: str) -> None:
    """A module gives the CPU's results, gradients and buffers, in the same layouts.

    Convolutions call `convolution_overrideable`, recurrent modules `_thnn_fused_lstm_cell` and
    `_thnn_fused_gru_cell`, which have no kernel for the CPU: the fallback does not help, and the backend registers
    them.
    """
    make, make_inputs = MODULES[case]
    torch.manual_seed(11)
    here, inputs = make(), make_inputs()
    there = copy.deepcopy(here).to(device.this)
    inputs_there = tuple(each.to(device.this) for each in inputs)
    for each in (*inputs, *inputs_there):
        each.requires_grad_(each.is_floating_point())
    wanted, got = run(here, inputs), run(there, inputs_there)
    assert got.keys() == wanted.keys(), f"there are {sorted(got)}, on the CPU {sorted(wanted)}"
    tolerance = 5e-3 if any(word in case for word in ("Conv", "RNN", "LSTM", "GRU")) else 2e-4
    for name, expected in wanted.items():
        assert got[name].shape == expected.shape and got[name].dtype == expected.dtype, name
        try:
            device.cpu_equal(got[name], expected, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
