"""Steps of a language model of 70 billion parameters, of which each rank has a part: what no laptop computes."""

from __future__ import annotations

import resource
import time
from typing import Any

import torch
import torch.distributed as dist
from devices import DEVICE
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HIDDEN, LAYERS, HEADS, KEYS, WORDS, LENGTH = 8192, 28672, 80, 64, 8, 128256, 4096
STEPS = 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        head = WIDTH // HEADS
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, KEYS * head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (each.repeat_interleave(HEADS // KEYS, 1) for each in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def train() -> dict[str, Any]:
    """The memory of the device and of the process, in GiB, the seconds, and the parameters."""
    begin = time.perf_counter()
    mesh = dist.init_device_mesh(DEVICE, (dist.get_world_size(),))
    with torch.device("meta"):
        net = Model()
    parameters = sum(each.numel() for each in net.parameters())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in net.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    net.to_empty(device=DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(STEPS):
        text = torch.randint(WORDS, (1, LENGTH + 1), device=DEVICE)
        scores = net(text[:, :-1])
        F.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    module = torch.get_device_module(DEVICE)
    module.synchronize()
    return {
        "parameters": parameters,
        "allocated": module.max_memory_allocated() / 2**30,
        "reserved": module.max_memory_reserved() / 2**30,
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "seconds": time.perf_counter() - begin,
    }
