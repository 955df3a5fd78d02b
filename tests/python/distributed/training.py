"""Small models, and steps of their training, that several ranks take together, or one process alone on the CPU."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from devices import DEVICE
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, WIDTH = 6, 8, 16


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.LayerNorm(WIDTH))


class Block(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.layers = model(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def blocks() -> nn.Sequential:
    return nn.Sequential(*(Block(seed) for seed in range(3)))


def batches() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(BATCH, WIDTH) for _ in range(STEPS)]


def whole(batch: torch.Tensor) -> torch.Tensor:
    return batch


def rank_part(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(dist.get_world_size())[dist.get_rank()].to(DEVICE)


def part_of(rank: int | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """What the rank takes of a batch; None: one process alone, which takes all."""
    return whole if rank is None else rank_part


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


def loss_of(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (net(x) - x.roll(1, 1)).square().mean()


def backward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = loss_of(net, x)
    loss.backward()
    return loss


def accumulate(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The gradients of two halves; only the second one's backward pass talks to the other ranks."""
    first, second = x.chunk(2)
    with getattr(net, "no_sync", contextlib.nullcontext)():
        loss = loss_of(net, first) / 2
        loss.backward()
    last = loss_of(net, second) / 2
    last.backward()
    return loss.detach() + last.detach()


def train(
    net: nn.Module,
    optimizer: Any,
    part: Callable[[torch.Tensor], torch.Tensor],
    sharded: bool = True,
    backward: Callable[[nn.Module, torch.Tensor], torch.Tensor] = backward,
    update: Callable[[Any], Any] = lambda optimizer: optimizer.step(),
) -> list[float]:
    """The loss of each step: if `sharded`, the mean of the ranks', each of which takes a part of the batch."""
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        loss = backward(net, part(batch)).detach().float()
        update(optimizer)
        if sharded and dist.is_initialized():
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def sums_after_training() -> dict[str, float]:
    """Of the parameters of blocks()."""
    net = blocks()
    train(net, adam(net), whole)
    return {name: value.sum().item() for name, value in net.state_dict().items()}


def ddp(rank: int | None, net: nn.Module | None = None, **how: Any) -> nn.Module:
    """With several buckets for each step."""
    net = net or model()
    return net if rank is None else DistributedDataParallel(net.to(DEVICE), bucket_cap_mb=0.002, **how)


def train_with_clipping(net: nn.Module, part: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
    def update(optimizer: torch.optim.Optimizer) -> None:
        clip = getattr(net, "clip_grad_norm_", lambda norm: nn.utils.clip_grad_norm_(net.parameters(), norm))
        clip(0.1)
        optimizer.step()

    return train(net, torch.optim.SGD(net.parameters(), lr=1), part, update=update)


def train_with_scaler(
    net: nn.Module, part: Callable[[torch.Tensor], torch.Tensor], scaler: torch.amp.GradScaler
) -> list[float]:
    def backward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = loss_of(net, x)
        scaler.scale(loss).backward()
        return loss

    def update(optimizer: torch.optim.Optimizer) -> None:
        scaler.step(optimizer)
        scaler.update()

    return train(net, adam(net), part, backward=backward, update=update)


def memory_in_use(step: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that are allocated after 20 steps and after 200."""
    gc.collect()  # what was there before
    after = []
    for number in range(1, 201):
        step()
        if number in (20, 200):
            torch.accelerator.synchronize()
            after.append(torch.accelerator.memory_allocated())
    return after[0], after[1]


def memory_of_training(
    net: nn.Module, backward: Callable[[nn.Module, torch.Tensor], torch.Tensor] = backward
) -> tuple[int, int]:
    optimizer = adam(net)
    x = rank_part(batches()[0])

    def step() -> None:
        optimizer.zero_grad()
        backward(net, x)
        optimizer.step()

    return memory_in_use(step)
