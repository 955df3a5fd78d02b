"""The networks that the benchmarks train and evaluate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Cache = list[tuple[torch.Tensor, torch.Tensor]]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn() -> nn.Module:
    """A classifier of images of any size."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )


class Transformer(nn.Module):
    """A classifier of sequences of vectors of size 128, of any length."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.encoder(x).mean(1))
        return scores


class Block(nn.Module):
    """A decoder layer, which appends the keys and values of new tokens to those of earlier tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.inner_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length, width = x.shape
        q, new_k, new_v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = torch.cat((k, new_k), 2), torch.cat((v, new_v), 2)
        seen = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.inner(self.inner_norm(x)), k, v


class Decoder(nn.Module):
    """A small language model, untrained."""

    def __init__(self, tokens: int = 1000, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, tokens)
        self.cache_shape = (1, heads, width // heads)

    def generate(self, count: int, before: int = 0, each_read: bool = False) -> list[int]:
        """Generates `count` tokens, each the most likely one, after a cache of `before` tokens. The host reads them at
        the end, or, with `each_read`, each one before the next is launched."""
        batch, heads, width = self.cache_shape
        device = self.head.weight.device
        empty = torch.zeros(batch, heads, before, width, device=device)
        cache: Cache = [(empty, empty)] * len(self.blocks)
        tokens: list[torch.Tensor] = []
        with torch.no_grad():
            token = torch.zeros(batch, 1, dtype=torch.int64, device=device)
            for _ in range(count):
                x = self.embedding(token)
                for index, block in enumerate(self.blocks):
                    x, k, v = block(x, *cache[index])
                    cache[index] = k, v
                token = self.head(x).argmax(-1)
                tokens.append(token)
                if each_read:
                    token.item()
        return [int(token) for token in torch.cat(tokens).flatten().tolist()]


def trainer(
    model: nn.Module, optimizer_class: type[torch.optim.Optimizer], device: str, **options: Any
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Moves the model to the device; returns a function that runs one training step with inputs and labels on it."""
    model.to(device)
    optimizer = optimizer_class(model.parameters(), **options)
    loss_function = nn.CrossEntropyLoss()

    def train(inputs: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss_function(model(inputs), labels).backward()
        optimizer.step()

    return train


def labels_for(x: torch.Tensor) -> torch.Tensor:
    return torch.randint(10, (x.shape[0],))


def training_step(
    model: nn.Module, optimizer_class: type[torch.optim.Optimizer], x: torch.Tensor, device: str, **options: Any
) -> Callable[[], None]:
    """Returns a function that runs one training step, with the same inputs each time, and labels of 10 classes."""
    train = trainer(model, optimizer_class, device, **options)
    inputs = x.to(device)
    with torch.no_grad():
        labels = labels_for(model(inputs)).to(device)
    return lambda: train(inputs, labels)


def mlp_step(device: str) -> Callable[[], None]:
    return training_step(mlp(), torch.optim.SGD, torch.randn(32, 64), device, lr=0.01, momentum=0.9)


def mlp_adamw_step(device: str) -> Callable[[], None]:
    return training_step(mlp(), torch.optim.AdamW, torch.randn(256, 64), device)


def cnn_step(device: str) -> Callable[[], None]:
    return training_step(cnn(), torch.optim.SGD, torch.randn(32, 3, 32, 32), device, lr=0.01)


def transformer_step(device: str) -> Callable[[], None]:
    return training_step(Transformer(), torch.optim.AdamW, torch.randn(16, 64, 128), device)
