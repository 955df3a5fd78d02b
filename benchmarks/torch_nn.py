#!/usr/bin/env python3
"""Times every module of torch.nn and every function of torch.nn.functional, forward and backward.

    python benchmarks/torch_nn.py [--rounds 3] [--case REGEX] [--json FILE] [--anyway]

The host waits after each call. Prints all cases, the mean of the ratios openreg / CPU, and the cases above 1.2; if
there are any, the exit status is 1. On a busy machine it does not measure (exit status 3). Inputs are small (8 samples
of 16 channels) or medium (16 of 64). Functions that a module calls are timed through the module; `left_out` has those
that no case calls.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import rounds
import torch
from rounds import Case, Step, steady
from torch import Tensor, nn
from torch.nn import functional as F

TARGET = 1.2

Inputs = tuple[object, ...]


@dataclass(frozen=True)
class Sizes:
    """Of the inputs: samples, channels, and the length of a sequence."""

    n: int
    c: int
    length: int

    def row(self) -> Tensor:
        return torch.randn(self.n, self.c)

    def sequence(self) -> Tensor:
        return torch.randn(self.n, self.length, self.c)

    def image(self, dimensions: int) -> Tensor:
        side = {1: 4 * self.length, 2: self.length, 3: self.length // 4}[dimensions]
        return torch.randn(self.n, self.c, *[side] * dimensions)

    def classes(self) -> Tensor:
        return torch.randint(self.c, (self.n,))

    def signs(self) -> Tensor:
        return torch.randint(2, (self.n,)) * 2.0 - 1


SMALL, MEDIUM = Sizes(8, 16, 16), Sizes(16, 64, 32)

# What is timed: a module or function, and its inputs. Floating-point inputs get a gradient in the cases "backward".
Made = tuple[Callable[..., object], Inputs]
Maker = Callable[[Sizes], Made]


def of_rows(module: Callable[[Sizes], Callable[..., object]]) -> Maker:
    return lambda s: (module(s), (s.row(),))


def of_images(dimensions: int, module: Callable[[Sizes], Callable[..., object]]) -> Maker:
    return lambda s: (module(s), (s.image(dimensions),))


def of_two_rows(loss: Callable[..., object], second: Callable[[Sizes], Tensor] = Sizes.row) -> Maker:
    return lambda s: (loss, (s.row(), second(s)))


def plain(name: str, *arguments: object, **options: object) -> Callable[[Sizes], nn.Module]:
    """A module that does not depend on the sizes."""

    def make(_sizes: Sizes) -> nn.Module:
        module = getattr(nn, name)(*arguments, **options)
        assert isinstance(module, nn.Module)
        return module

    return make


def of_channels(name: str, count: int, *arguments: object, **options: object) -> Callable[[Sizes], nn.Module]:
    """A module whose first `count` arguments are the number of channels."""
    return lambda s: plain(name, *[s.c] * count, *arguments, **options)(s)


def activations() -> dict[str, Maker]:
    names = (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 RReLU "
        "SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Dropout AlphaDropout Identity Softmax2d"
    )
    made = {name: of_images(2, plain(name)) for name in names.split()}
    made |= {name: of_images(2, plain(name, 1)) for name in ("LogSoftmax", "Softmax", "Softmin")}
    return made | {
        "Threshold": of_images(2, plain("Threshold", 0.1, 0.0)),
        "gumbel_softmax": of_rows(lambda _s: F.gumbel_softmax),
        "normalize": of_rows(lambda _s: F.normalize),
    }


def layers_of_images() -> dict[str, Maker]:
    made: dict[str, Maker] = {}
    for d in (1, 2, 3):
        modules = {
            **{name: of_channels(f"{name}{d}d", 2, 3, padding=1) for name in ("Conv", "ConvTranspose")},
            **{name: of_channels(f"{name}{d}d", 1) for name in ("BatchNorm", "InstanceNorm")},
            **{name: plain(f"{name}{d}d", 2) for name in ("AvgPool", "MaxPool", "AdaptiveAvgPool", "AdaptiveMaxPool")},
            **{name: plain(f"{name}{d}d", 1) for name in ("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad")},
            "LPPool": plain(f"LPPool{d}d", 2, 2),
            "ConstantPad": plain(f"ConstantPad{d}d", 1, 1.5),
            "Dropout": plain(f"Dropout{d}d"),
        }
        if d > 1:
            modules["FractionalMaxPool"] = plain(f"FractionalMaxPool{d}d", 2, output_ratio=0.5)
        made |= {f"{name}{d}d": of_images(d, module) for name, module in modules.items()}
        made[f"MaxUnpool{d}d"] = partial(unpooling, d)
    return made


def unpooling(dimensions: int, s: Sizes) -> Made:
    pooled, indices = plain(f"MaxPool{dimensions}d", 2, return_indices=True)(s)(s.image(dimensions))
    return plain(f"MaxUnpool{dimensions}d", 2)(s), (pooled, indices)


def columns(s: Sizes) -> Tensor:
    return F.unfold(s.image(2), 3)


def layers() -> dict[str, Maker]:
    return {
        "Bilinear": lambda s: (nn.Bilinear(s.c, s.c, s.c), (s.row(), s.row())),
        "Linear": of_rows(lambda s: nn.Linear(s.c, s.c)),
        "Embedding": lambda s: (nn.Embedding(1000, s.c), (torch.randint(1000, (s.n, s.length)),)),
        "EmbeddingBag": lambda s: (nn.EmbeddingBag(1000, s.c), (torch.randint(1000, (s.n, s.length)),)),
        "LayerNorm": of_rows(lambda s: nn.LayerNorm(s.c)),
        "RMSNorm": of_rows(lambda s: nn.RMSNorm(s.c)),
        "GroupNorm": of_images(2, lambda s: nn.GroupNorm(2, s.c)),
        "LocalResponseNorm": of_images(2, lambda _s: nn.LocalResponseNorm(2)),
        "CrossMapLRN2d": of_images(2, lambda _s: nn.CrossMapLRN2d(2)),
        "ChannelShuffle": of_images(2, lambda _s: nn.ChannelShuffle(2)),
        "PixelShuffle": of_images(2, lambda _s: nn.PixelShuffle(2)),
        "PixelUnshuffle": of_images(2, lambda _s: nn.PixelUnshuffle(2)),
        "Flatten": of_images(2, lambda _s: nn.Flatten()),
        "Unflatten": of_rows(lambda _s: nn.Unflatten(1, (2, -1))),
        "Unfold": of_images(2, lambda _s: nn.Unfold(3)),
        "Fold": lambda s: (nn.Fold((s.length, s.length), 3), (columns(s),)),
        "FeatureAlphaDropout": of_images(2, lambda _s: nn.FeatureAlphaDropout()),
        "Upsample": of_images(2, lambda _s: nn.Upsample(scale_factor=2)),
        "UpsamplingBilinear2d": of_images(2, lambda _s: nn.UpsamplingBilinear2d(scale_factor=2)),
        "UpsamplingNearest2d": of_images(2, lambda _s: nn.UpsamplingNearest2d(scale_factor=2)),
        "interpolate, bicubic": of_images(2, lambda _s: partial(F.interpolate, scale_factor=2, mode="bicubic")),
        "interpolate, trilinear": of_images(3, lambda _s: partial(F.interpolate, scale_factor=2, mode="trilinear")),
        "affine_grid": lambda s: (F.affine_grid, (torch.randn(s.n, 2, 3), (s.n, s.c, s.length, s.length))),
        "grid_sample": lambda s: (
            partial(F.grid_sample, align_corners=False),
            (s.image(2), torch.rand(s.n, s.length, s.length, 2) * 2 - 1),
        ),
        "conv_tbc": lambda s: (F.conv_tbc, (s.sequence(), torch.randn(3, s.c, s.c), torch.randn(s.c))),
        "pad, reflect": of_images(2, lambda _s: partial(F.pad, pad=(2, 2, 1, 1), mode="reflect")),
        "one_hot": lambda s: (F.one_hot, (s.classes(),)),
    }


def networks() -> dict[str, Maker]:
    def recurrent(network: type[nn.Module]) -> Maker:
        return lambda s: (network(s.c, s.c, num_layers=2, batch_first=True), (s.sequence(),))

    def cell(network: type[nn.Module]) -> Maker:
        return lambda s: (network(s.c, s.c), (s.row(),))

    def encoder(s: Sizes) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(s.c, 4, 2 * s.c, batch_first=True)

    def decoder(s: Sizes) -> nn.TransformerDecoderLayer:
        return nn.TransformerDecoderLayer(s.c, 4, 2 * s.c, batch_first=True)

    def attention(s: Sizes) -> Made:
        x = s.sequence()
        return nn.MultiheadAttention(s.c, 4, batch_first=True), (x, x, x)

    return {
        "LSTM": recurrent(nn.LSTM),
        "GRU": recurrent(nn.GRU),
        "RNN": recurrent(nn.RNN),
        "LSTMCell": cell(nn.LSTMCell),
        "GRUCell": cell(nn.GRUCell),
        "RNNCell": cell(nn.RNNCell),
        "MultiheadAttention": attention,
        "scaled_dot_product_attention": lambda s: (
            F.scaled_dot_product_attention,
            tuple(torch.randn(s.n, 4, s.length, s.c) for _ in range(3)),
        ),
        "TransformerEncoderLayer": lambda s: (encoder(s), (s.sequence(),)),
        "TransformerDecoderLayer": lambda s: (decoder(s), (s.sequence(), s.sequence())),
        "TransformerEncoder": lambda s: (nn.TransformerEncoder(encoder(s), 2), (s.sequence(),)),
        "TransformerDecoder": lambda s: (nn.TransformerDecoder(decoder(s), 2), (s.sequence(), s.sequence())),
        "Transformer": lambda s: (
            nn.Transformer(s.c, 4, 1, 1, 2 * s.c, batch_first=True),
            (s.sequence(), s.sequence()),
        ),
    }


def losses() -> dict[str, Maker]:
    def probabilities(s: Sizes) -> Tensor:
        return torch.rand(s.n, s.c)

    def three_rows(loss: Callable[..., object], third: Callable[[Sizes], Tensor] = Sizes.row) -> Maker:
        return lambda s: (loss, (s.row(), s.row(), third(s)))

    def ctc(s: Sizes) -> Made:
        scores = torch.randn(4 * s.length, s.n, s.c).log_softmax(2)
        lengths = (torch.full((s.n,), 4 * s.length), torch.full((s.n,), s.length))
        return nn.CTCLoss(), (scores, torch.randint(1, s.c, (s.n, s.length)), *lengths)

    def clusters(s: Sizes) -> Made:
        return nn.AdaptiveLogSoftmaxWithLoss(s.c, s.c, [s.c // 2]), (s.row(), s.classes())

    def linear_cross_entropy(s: Sizes) -> Made:
        return F.linear_cross_entropy, (s.row(), torch.randn(s.c, s.c), s.classes())

    names = "BCEWithLogitsLoss HuberLoss KLDivLoss L1Loss MSELoss PoissonNLLLoss SmoothL1Loss"
    made: dict[str, Maker] = {name: of_two_rows(getattr(nn, name)()) for name in names.split()}
    if hasattr(F, "linear_cross_entropy"):  # in newer versions of torch
        made["linear_cross_entropy"] = linear_cross_entropy
    return made | {
        "AdaptiveLogSoftmaxWithLoss": clusters,
        "BCELoss": lambda s: (nn.BCELoss(), (probabilities(s), probabilities(s))),
        "CTCLoss": ctc,
        "CosineEmbeddingLoss": three_rows(nn.CosineEmbeddingLoss(), Sizes.signs),
        "CosineSimilarity": of_two_rows(nn.CosineSimilarity()),
        "CrossEntropyLoss": of_two_rows(nn.CrossEntropyLoss(), Sizes.classes),
        "GaussianNLLLoss": three_rows(nn.GaussianNLLLoss(), probabilities),
        "HingeEmbeddingLoss": of_two_rows(nn.HingeEmbeddingLoss(), lambda s: s.signs()[:, None]),
        "MarginRankingLoss": three_rows(nn.MarginRankingLoss(), lambda s: s.signs()[:, None]),
        "MultiLabelMarginLoss": of_two_rows(nn.MultiLabelMarginLoss(), lambda s: torch.randint(-1, s.c, (s.n, s.c))),
        "MultiLabelSoftMarginLoss": of_two_rows(nn.MultiLabelSoftMarginLoss(), probabilities),
        "MultiMarginLoss": of_two_rows(nn.MultiMarginLoss(), Sizes.classes),
        "NLLLoss": of_two_rows(nn.NLLLoss(), Sizes.classes),
        "SoftMarginLoss": of_two_rows(nn.SoftMarginLoss(), lambda s: torch.randint(2, (s.n, s.c)) * 2 - 1),
        "PairwiseDistance": of_two_rows(nn.PairwiseDistance()),
        "TripletMarginLoss": three_rows(nn.TripletMarginLoss()),
        "TripletMarginWithDistanceLoss": three_rows(nn.TripletMarginWithDistanceLoss()),
        "pdist": of_rows(lambda _s: F.pdist),
    }


def makers() -> dict[str, dict[str, Maker]]:
    """By groups and names."""
    return {
        "activations": activations(),
        "images": layers_of_images(),
        "layers": layers(),
        "networks": networks(),
        "losses": losses(),
    }


def left_out() -> dict[str, str]:
    """Modules and functions that no case calls, and why. Modules that are lazy at first become those without `Lazy`."""
    since_2_15 = "scaled_addmm scaled_addmm_" if hasattr(F, "scaled_addmm") else ""
    reasons = {
        "a container": "Container DataParallel Module ModuleDict ModuleList ParameterDict ParameterList Sequential",
        "the base of others": "RNNBase RNNCellBase",
        "has the kernels of BatchNorm, and needs several processes": "SyncBatchNorm",
        "an older name": "NLLLoss2d upsample upsample_bilinear upsample_nearest tanh sigmoid",
        "has the kernels of its function": "LinearCrossEntropyLoss",
        "not for float32 on CPUs": f"grouped_mm scaled_grouped_mm scaled_mm {since_2_15}",
        "a helper": "assert_int_or_pair boolean_dispatch has_torch_function has_torch_function_unary "
        "has_torch_function_variadic",
        "in place, or with its indices": "celu_ elu_ hardtanh_ leaky_relu_ relu_ rrelu_ selu_ threshold_ "
        "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
        "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices max_pool1d_with_indices "
        "max_pool2d_with_indices max_pool3d_with_indices",
        "the kernel of hardtanh": "relu6",
        "the kernel of its namesake": "native_channel_shuffle",
    }
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def tensors_of(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for each in result for tensor in tensors_of(each)]
    return []


def on(device: str, made: Made, gradient: bool) -> Made:
    function, inputs = made
    if isinstance(function, nn.Module):
        function = function.to(device).train(gradient).requires_grad_(gradient)
    moved = {
        id(each): each.to(device).requires_grad_(gradient and each.is_floating_point())
        for each in inputs
        if isinstance(each, Tensor)
    }
    return function, tuple(moved.get(id(each), each) for each in inputs)


def forward(maker: Maker, sizes: Sizes, device: str) -> Step:
    function, inputs = on(device, maker(sizes), gradient=False)

    def step() -> None:
        with torch.no_grad():
            function(*inputs)

    return step


def backward(maker: Maker, sizes: Sizes, device: str) -> Step:
    """Forward and backward, with the sum of the results as the loss."""
    function, inputs = on(device, maker(sizes), gradient=True)
    leaves = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
    leaves += list(function.parameters()) if isinstance(function, nn.Module) else []

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        results = [each for each in tensors_of(function(*inputs)) if each.requires_grad]
        torch.autograd.backward(results, [torch.ones_like(each) for each in results])

    return step


def has_gradient(maker: Maker) -> bool:
    function, inputs = on("cpu", maker(SMALL), gradient=True)
    return any(each.requires_grad for each in tensors_of(function(*inputs)))


def cases_of(name: str, maker: Maker) -> list[Case]:
    cases: list[Case] = []
    for size, sizes in (("small", SMALL), ("medium", MEDIUM)):
        cases.append(steady(f"{name}, {size}", partial(forward, maker, sizes)))
        if has_gradient(maker):
            cases.append(steady(f"{name}, {size}, backward", partial(backward, maker, sizes)))
    return cases


def groups() -> rounds.Groups:
    warnings.simplefilter("ignore")  # of modules that are deprecated, or nested
    return {
        group: [case for name, maker in by_name.items() for case in cases_of(name, maker)]
        for group, by_name in makers().items()
    }


def print_summary(report: rounds.Report) -> bool:
    """Returns whether all cases reach the target."""
    ratios = {name: result["ratio"] for name, result in report["cases"].items()}
    above = {name: ratio for name, ratio in sorted(ratios.items(), key=lambda item: -item[1]) if ratio > TARGET}
    print(f"\n{len(ratios)} cases, geometric mean {statistics.geometric_mean(ratios.values()):.2f}; above {TARGET}:")
    for name, ratio in above.items():
        print(f"  {ratio:5.2f}  {name}")
    return not above


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.add_options(parser)
    parser.set_defaults(rounds=3, seconds=0.1)
    options = parser.parse_args()
    report = rounds.run(groups(), options)
    if options.measure:
        return 0
    if not report:
        return 3
    return 0 if print_summary(report) else 1


if __name__ == "__main__":
    sys.exit(main())
