"""Well-known networks, each small enough for a training step of some 10 to 200 ms on two cores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from models import training_step
from rounds import Case, steady
from torch import Tensor, nn
from torch.nn import functional as F


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """With batch normalisation, and without a bias, which that would take away."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """Adds what `body` computes to its input, or to `shortcut` of it."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.shortcut(x)
        return total


def classifier(*body: nn.Module, channels: int) -> nn.Module:
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def resnet18(width: int = 32) -> nn.Module:
    """Of He et al. 2016, for images of 32x32: two residual blocks in each of four stages."""
    layers: list[nn.Module] = [*convolution(3, width), nn.ReLU()]
    channels = width
    for stage in range(4):
        outputs = width << stage
        for stride in (1 if stage == 0 else 2, 1):
            body = nn.Sequential(
                *convolution(channels, outputs, stride=stride), nn.ReLU(), *convolution(outputs, outputs)
            )
            same = stride == 1 and channels == outputs
            shortcut = None if same else nn.Sequential(*convolution(channels, outputs, 1, stride))
            layers += [Residual(body, shortcut), nn.ReLU()]
            channels = outputs
    return classifier(*layers, channels=channels)


def mobilenet(width: int = 16) -> nn.Module:
    """Of Sandler et al. 2018: inverted residuals around a convolution of single channels."""
    layers: list[nn.Module] = [*convolution(3, width), nn.ReLU6()]
    channels = width
    for outputs, stride in ((24, 1), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        inner = 6 * channels
        body = nn.Sequential(
            *(*convolution(channels, inner, 1), nn.ReLU6()),
            *(*convolution(inner, inner, 3, stride, groups=inner), nn.ReLU6()),
            *convolution(inner, outputs, 1),
        )
        layers.append(Residual(body) if stride == 1 and channels == outputs else body)
        channels = outputs
    return classifier(*layers, channels=channels)


class UNet(nn.Module):
    """Of Ronneberger et al. 2015, two levels deep: a class for each pixel."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(*convolution(inputs, outputs), nn.ReLU(), *convolution(outputs, outputs), nn.ReLU())

        self.down = nn.ModuleList([double(3, width), double(width, 2 * width)])
        self.bottom = double(2 * width, 4 * width)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * channels, channels, 2, stride=2) for channels in (2 * width, width)
        )
        self.merge = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((up(x), kept.pop()), 1))
        scores: Tensor = self.head(x)
        return scores.mean((2, 3))


class Layer(nn.Module):
    """Attention and two linear layers, each normalised before (GPT-2, ViT) or after it (BERT)."""

    def __init__(self, width: int, heads: int, causal: bool, norm_first: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.norm_first = heads, causal, norm_first
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        result: Tensor = self.out(seen.transpose(1, 2).reshape(n, length, width))
        return result

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Callable[[Tensor], Tensor]] = [self.attend, self.inner]
        for part, norm in zip(parts, self.norms, strict=True):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class LanguageModel(nn.Module):
    """GPT-2 (Radford et al. 2019), or BERT's encoder (Devlin et al. 2019), which classifies sequences here."""

    def __init__(self, causal: bool, tokens: int = 1000, width: int = 128, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(tokens, width), nn.Embedding(512, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal, norm_first=causal) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)
        self.causal = causal

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions.weight[: ids.shape[1]]
        x = self.norm(self.layers(x))
        scores: Tensor = self.head(x if self.causal else x[:, 0])
        return scores.flatten(0, -2)


class ViT(nn.Module):
    """Of Dosovitskiy et al. 2021, for images of 32x32 in patches of 4x4."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=False, norm_first=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        scores: Tensor = self.head(self.norm(self.layers(x)).mean(1))
        return scores


class Lstm(nn.Module):
    """Two layers of an LSTM over embedded tokens; the next token of each."""

    def __init__(self, tokens: int = 1000, width: int = 128) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, width), nn.Linear(width, tokens)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(self.embedding(ids))[0])
        return scores.flatten(0, 1)


def images(n: int) -> Tensor:
    return torch.randn(n, 3, 32, 32)


def tokens(n: int, length: int) -> Tensor:
    return torch.randint(1000, (n, length))


def cases() -> list[Case]:
    """A training step of each."""

    def step(model: Callable[[], nn.Module], x: Callable[[], Tensor]) -> Callable[[str], Callable[[], None]]:
        return lambda device: training_step(model(), torch.optim.AdamW, x(), device)

    return [
        steady("ResNet-18, batch 8", step(resnet18, lambda: images(8))),
        steady("MobileNet, batch 8", step(mobilenet, lambda: images(8))),
        steady("U-Net, batch 4", step(UNet, lambda: images(4))),
        steady("ViT, batch 8", step(ViT, lambda: images(8))),
        steady("BERT, batch 8 of 64", step(lambda: LanguageModel(causal=False), lambda: tokens(8, 64))),
        steady("GPT-2, batch 4 of 64", step(lambda: LanguageModel(causal=True), lambda: tokens(4, 64))),
        steady("LSTM, batch 16 of 40", step(Lstm, lambda: tokens(16, 40))),
    ]
