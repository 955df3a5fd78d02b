"""The training whose memory PyTorch's own tests of FullyShardedDataParallel expect, and what they expect of it.

Model, steps, figures and tolerance are those of test/distributed/fsdp/test_fsdp_memory.py in PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist
from devices import DEVICE, OPENREG
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.checkpoint import checkpoint

RANKS, ITERATIONS, TOLERANCE = 2, 4, 1
SHARDED = 4 // RANKS  # MiB of parameters of a rank


def expected(checkpointed: bool) -> dict[str, int]:
    """In MiB, by iteration and place."""
    activations = 51 if checkpointed else 340
    figures = {}
    for iteration in range(ITERATIONS):
        optimizer = 0 if iteration == 0 else SHARDED
        figures |= {
            f"{iteration} start": SHARDED + optimizer + 1,
            f"{iteration} forward": activations + optimizer,
            f"{iteration} backward": 2 * SHARDED + optimizer + 1,
            f"{iteration} step": 3 * SHARDED + 1,
        }
    return figures


class Model(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.stem = FullyShardedDataParallel(nn.Sequential(*convolution(3, 64, kernel_size=3)))
        self.blocks = FullyShardedDataParallel(
            nn.Sequential(
                *convolution(64, 128, kernel_size=5, padding=2),
                *convolution(128, 128, kernel_size=5, padding=2),
                *convolution(128, 128, kernel_size=5, padding=2),
                nn.AdaptiveAvgPool2d(output_size=(1, 1)),
                nn.Flatten(),
            )
        )
        self.head = FullyShardedDataParallel(nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = checkpoint(self.blocks, x, use_reentrant=True) if self.checkpointed else self.blocks(x)
        return self.head(x)


def convolution(channels: int, others: int, **how: int) -> tuple[nn.Module, ...]:
    norm = FullyShardedDataParallel(nn.BatchNorm2d(others))
    return nn.Conv2d(channels, others, **how), norm, nn.ReLU(inplace=True)


def library() -> Any:
    """The device's extension module."""
    return importlib.import_module("torch_openreg._C" if DEVICE == OPENREG else "openreg_cuda.device._C")


def memory_of_training(checkpointed: bool, iterations: int = ITERATIONS) -> dict[str, float]:
    torch.manual_seed(0)
    module = torch.get_device_module(DEVICE)
    figures = {}

    def note(iteration: int, place: str) -> None:
        library().clear_blas_workspaces()
        figures[f"{iteration} {place}"] = module.memory_allocated() / 2**20

    model = FullyShardedDataParallel(Model(checkpointed).to(DEVICE))
    batch = torch.randn(2, 3, 224, 224).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for iteration in range(iterations):
        note(iteration, "start")
        out = model(batch)
        note(iteration, "forward")
        total = sum(each.sum() for each in out[0])
        loss = nn.MSELoss()(total, torch.tensor(0.0).to(DEVICE))
        loss.backward()
        note(iteration, "backward")
        optimizer.step()
        note(iteration, "step")
        model.zero_grad(set_to_none=True)
    dist.barrier()
    return figures
