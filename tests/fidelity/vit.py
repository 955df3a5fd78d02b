"""ViT-L/16 as torchvision has it, fine-tuned as in rasbt/pytorch-memory-optim: the most that PyTorch reserves.

The figures are of a PyTorch of June 2023. What it did otherwise than today's and takes memory is written out:
`FlashAttention` and `Adam`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

SIDE, PATCH, WIDTH, HEADS, INNER, LAYERS, CLASSES = 224, 16, 1024, 16, 4096, 24, 10
STEPS = 3


@dataclass(frozen=True)
class Options:
    batch: int = 64
    precision: str = "float32"  # or mixed float16, or all bfloat16
    accumulated: int = 1  # batches for a step
    sgd: bool = False


class FlashAttention(torch.autograd.Function):
    """Of version 1: it reads and writes tensors that are contiguous as batch x length x heads x width."""

    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
        result = torch.ops.aten._scaled_dot_product_flash_attention(*map(_repacked, given))
        ctx.save_for_backward(*given, result[0], result[1])
        ctx.others = result[2:8]
        return result[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        *tensors, sums = ctx.saved_tensors
        tensors = [_repacked(each) for each in (gradient, *tensors)]
        first, second, longest, longest_key, seed, offset = ctx.others
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *tensors, sums, first, second, longest, longest_key, 0.0, False, seed, offset
        )


def _repacked(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


class Attention(nn.Module):
    """nn.MultiheadAttention of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.projections, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(0, 1)
        length, batch, _ = x.shape
        projected = self.projections(x).unflatten(-1, (3, WIDTH)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        q, k, v = (each.view(length, batch * HEADS, WIDTH // HEADS).transpose(0, 1) for each in projected)
        q, k, v = (each.view(batch, HEADS, length, WIDTH // HEADS) for each in (q, k, v))
        attend = F.scaled_dot_product_attention if q.dtype == torch.float32 else FlashAttention.apply
        mixed = attend(q, k, v).permute(2, 0, 1, 3).contiguous().view(length * batch, WIDTH)
        return self.out(mixed).view(length, batch, WIDTH).transpose(0, 1)


class Adam(torch.optim.Optimizer):
    """With one more temporary of the parameters' size than today's."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        parameters = self.param_groups[0]["params"]
        for each in parameters:
            if not self.state[each]:
                self.state[each] = {"first": torch.zeros_like(each), "second": torch.zeros_like(each)}
        gradients = [each.grad for each in parameters]
        first, second = ([self.state[each][name] for each in parameters] for name in ("first", "second"))
        torch._foreach_lerp_(first, gradients, 0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, gradients, gradients, 0.001)
        roots = torch._foreach_sqrt(second)
        divisors = torch._foreach_add(roots, 1e-8)
        torch._foreach_addcdiv_(parameters, first, divisors, -5e-5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = Attention()
        self.network = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.norm1(given)
        x = self.attention(x)
        x = x + given
        y = self.norm2(x)
        y = self.network(y)
        return x + y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        patches = (SIDE // PATCH) ** 2
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, patches + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x)
        x = x.reshape(x.shape[0], WIDTH, -1)
        x = x.permute(0, 2, 1)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.places
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


def reserved(options: Options) -> float:
    """In 10^9 bytes."""
    device = torch.accelerator.current_accelerator()
    assert device is not None
    mixed, dtype = options.precision == "float16", torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    model = Model().to(dtype).to(device)
    optimizer: torch.optim.Optimizer
    if options.sgd:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    else:
        optimizer = Adam(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=mixed)
    for step in range(STEPS * options.accumulated):
        images = torch.zeros(options.batch, 3, SIDE, SIDE).to(device)
        targets = torch.randint(CLASSES, (options.batch,)).to(device)
        with torch.autocast(device.type, torch.float16) if mixed else contextlib.nullcontext():
            scores = model(images.to(dtype))
        scores = scores.float()
        loss = F.cross_entropy(scores, targets) / options.accumulated
        if options.accumulated == 1:
            optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step % options.accumulated == 0:
            scaler.step(optimizer)
            scaler.update()
            if options.accumulated > 1:
                optimizer.zero_grad()
        with torch.no_grad():
            (torch.argmax(scores, 1) == targets).sum()
    return torch.get_device_module(device).max_memory_reserved() / 1e9
