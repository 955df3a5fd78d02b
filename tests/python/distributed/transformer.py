"""A small language model, to be split over ranks, and its training on one process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, LENGTH, WIDTH, HEAD_WIDTH, WORDS, BLOCKS = 4, 4, 16, 32, 8, 40, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Of a rank's heads, which may be some of all.
        q, k, v = (layer(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.feed_forward = nn.LayerNorm(WIDTH), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(words))))


def transformer() -> Transformer:
    torch.manual_seed(0)
    return Transformer()


def batches() -> list[torch.Tensor]:
    """Texts that count, from anywhere; of one word more than the model reads, which is the last that it predicts."""
    generator = torch.Generator().manual_seed(1)
    starts = [torch.randint(WORDS, (BATCH, 1), generator=generator) for _ in range(STEPS)]
    return [(start + torch.arange(LENGTH + 1)) % WORDS for start in starts]


def loss_of(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, 1), words.flatten())


def train(net: nn.Module, step: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> list[float]:
    """The losses that `step` returns, which has called backward()."""
    # One by one: parameters of a net that is split may be of several classes.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    losses = []
    for text in batches():
        optimizer.zero_grad()
        losses.append(step(net, text).detach())
        optimizer.step()
    return [loss.item() for loss in losses]


def whole_step(net: nn.Module, text: torch.Tensor) -> torch.Tensor:
    loss = loss_of(net(text[:, :-1]), text[:, 1:])
    loss.backward()
    return loss
