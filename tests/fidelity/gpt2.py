"""GPT-2 of 124 million parameters, trained in the steps of rasbt/LLMs-from-scratch (chapter 5, training speed).

Each option is one of the steps there. The figure is what PyTorch has reserved when an epoch has ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

LENGTH, WIDTH, HEADS, LAYERS, DROPOUT = 1024, 768, 12, 12, 0.1
EVALUATED, STEPS = 15, 17  # a validation every 15 steps; the epoch has more steps, which reserve nothing new


@dataclass(frozen=True)
class Options:
    kept_mask: bool = True
    fused_optimizer: bool = False
    bfloat16: bool = False
    library_layers: bool = False  # nn.LayerNorm and nn.GELU
    library_attention: bool = False
    compiled: bool = False
    parallel: bool = False  # DistributedDataParallel
    words: int = 50257
    batch: int = 8


class Attention(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.kept_mask = options.kept_mask
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        if options.kept_mask:
            self.register_buffer("mask", torch.triu(torch.ones(LENGTH, LENGTH), diagonal=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        keys, queries, values = (each(x) for each in (self.key, self.query, self.value))
        keys, values, queries = (
            each.view(-1, length, HEADS, WIDTH // HEADS).transpose(1, 2) for each in (keys, values, queries)
        )
        scores = queries @ keys.transpose(2, 3)
        if self.kept_mask:
            mask = self.mask.bool()[:length, :length]
        else:
            mask = torch.triu(torch.ones(length, length, device=x.device), diagonal=1).bool()
        scores.masked_fill_(mask, -torch.inf)
        weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
        weights = self.dropout(weights)
        mixed = (weights @ values).transpose(1, 2)
        mixed = mixed.reshape(-1, length, WIDTH)
        return self.out(mixed)


class LibraryAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        queries, keys, values = qkv
        dropout = DROPOUT if self.training else 0.0
        mixed = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().view(batch, length, WIDTH)
        return self.out(mixed)


class LayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        normed = (x - mean) / torch.sqrt(variance + 1e-5)
        return self.scale * normed + self.shift


class Gelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / math.pi)) * (x + 0.044715 * torch.pow(x, 3))))


class Block(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        norm = nn.LayerNorm if options.library_layers else LayerNorm
        gelu = nn.GELU(approximate="tanh") if options.library_layers else Gelu()
        self.attention = LibraryAttention() if options.library_attention else Attention(options)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in ((self.norm1, self.attention), (self.norm2, self.network)):
            before = x
            x = norm(x)
            x = layer(x)
            x = self.dropout(x)
            x = x + before
        return x


class Model(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(options.words, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block(options) for _ in range(LAYERS)))
        self.norm = (nn.LayerNorm if options.library_layers else LayerNorm)(WIDTH)
        self.head = nn.Linear(WIDTH, options.words, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        words = self.words(text)
        places = self.places(torch.arange(text.shape[1], device=text.device))
        x = words + places
        x = self.dropout(x)
        x = self.blocks(x)
        x = self.norm(x)
        scores = self.head(x)
        return scores


def batch_of(options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    text = torch.randint(options.words, (options.batch, LENGTH + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(model: nn.Module, options: Options, device: torch.device) -> torch.Tensor:
    text, target = (each.to(device) for each in batch_of(options))
    scores = model(text)
    loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
    return loss


def validate(model: nn.Module, options: Options, device: torch.device) -> None:
    model.eval()
    with torch.no_grad():
        for _ in ("training", "validation"):
            loss_of(model, options, device).item()
    model.train()


def generate(model: nn.Module, device: torch.device) -> None:
    # Without DDP, with which PyTorch cannot compile the growing text.
    model = getattr(model, "module", model)
    model.eval()
    text = torch.randint(1000, (1, 4)).to(device)
    for _ in range(50):
        with torch.no_grad():
            scores = model(text[:, -LENGTH:])
        text = torch.cat((text, torch.argmax(scores[:, -1, :], dim=-1, keepdim=True)), dim=1)
    model.train()


def reserved(options: Options) -> float:
    """MiB."""
    device = torch.accelerator.current_accelerator()
    assert device is not None
    model = Model(options)
    if options.compiled:
        model = torch.compile(model)  # type: ignore[assignment]
    model.to(device)
    if options.bfloat16:
        model.to(torch.bfloat16)
    if options.parallel:
        dist.init_process_group()
        model = DistributedDataParallel(model, device_ids=[0])  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1, fused=options.fused_optimizer or None)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, options, device)
        loss.backward()
        optimizer.step()
        if step % EVALUATED == 0:
            validate(model, options, device)
    generate(model, device)
    return torch.get_device_module(device).memory_reserved() / 2**20
