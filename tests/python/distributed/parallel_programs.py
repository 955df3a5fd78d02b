"""Steps of training, one program for each way to split a model over ranks, and the device memory that they take.

Their parameters are larger than what collectives move if the device does not compute.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from devices import DEVICE
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WIDTH, HIDDEN, BLOCKS, BATCH, STEPS = 512, 768, 4, 16, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def blocks(count: int = BLOCKS) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(count))).to(DEVICE)


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (BATCH, WIDTH)), device=DEVICE)


def train(net: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer, *shape: int) -> None:
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = net(inputs(*shape)).square().mean()
        loss.backward()
        optimizer.step()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-3)


def whole_mesh(*names: str) -> DeviceMesh:
    return dist.init_device_mesh(DEVICE, (dist.get_world_size(),), mesh_dim_names=names or None)


def ddp() -> None:
    net = DistributedDataParallel(blocks(), bucket_cap_mb=4)
    train(net, adam(net))


def zero() -> None:
    net = DistributedDataParallel(blocks())
    train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-3))


def fsdp1() -> None:
    net = FullyShardedDataParallel(blocks(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    train(net, adam(net))


def sharded(mesh: DeviceMesh) -> nn.Module:
    net = blocks()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in net:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(net, mesh=mesh, mp_policy=policy)


def fsdp2() -> None:
    net = sharded(whole_mesh())
    optimizer = adam(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(inputs()).square().mean().backward()
        total = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        assert isinstance(total, DTensor)
        optimizer.step()


def hsdp() -> None:
    size = dist.get_world_size()
    mesh = dist.init_device_mesh(DEVICE, (2, size // 2), mesh_dim_names=("replicate", "shard"))
    net = sharded(mesh)
    train(net, adam(net))


def tensor_parallel() -> None:
    """With sequence parallelism: between the layers each rank has a part of the rows."""
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0)),
    }
    net, mesh = blocks(), whole_mesh()
    for block in net:
        parallelize_module(block, mesh, plan)
    first = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Shard(0), use_local_output=True)
    net = parallelize_module(net, mesh, first)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
    train(net, optimizer, BATCH // dist.get_world_size() * 8, WIDTH)


def pipeline(make_schedule: Callable[..., Any], stages_per_rank: int) -> None:
    rank, size, microbatches = dist.get_rank(), dist.get_world_size(), 2 * dist.get_world_size()
    microbatch = torch.empty(BATCH, WIDTH, device="meta")
    numbers = range(rank, size * stages_per_rank, size)
    nets = [blocks(2) for _ in numbers]
    stages = [
        PipelineStage(
            net,
            number,
            size * stages_per_rank,
            torch.device(DEVICE, torch.accelerator.current_device_index()),
            input_args=microbatch.clone().requires_grad_(number > 0),
            output_args=microbatch.clone().requires_grad_(),
        )
        for net, number in zip(nets, numbers, strict=True)
    ]
    loss = functools.partial(F.mse_loss)
    schedule = make_schedule(stages if stages_per_rank > 1 else stages[0], microbatches, loss_fn=loss)
    optimizer = torch.optim.AdamW([each for net in nets for each in net.parameters()], lr=1e-3)
    x, target = inputs(BATCH * microbatches, WIDTH), inputs(BATCH * microbatches, WIDTH)
    for _ in range(STEPS):
        optimizer.zero_grad()
        given = [x] if rank == 0 else []
        if rank == size - 1:
            schedule.step(*given, target=target, losses=[])
        else:
            schedule.step(*given)
        optimizer.step()


def gpipe() -> None:
    pipeline(ScheduleGPipe, 1)


def one_forward_one_backward() -> None:
    pipeline(Schedule1F1B, 1)


def interleaved() -> None:
    pipeline(ScheduleInterleaved1F1B, 2)


def contexts() -> None:
    """Attention of a sequence of which each rank has a part."""
    mesh = whole_mesh()
    net = nn.Linear(64, 192, device=DEVICE)
    optimizer = adam(net)
    x = inputs(2, 1024, 64)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            q, k, v = (each.unflatten(-1, (2, 32)).transpose(1, 2) for each in net(x).chunk(3, -1))
            F.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def experts() -> None:
    """Each rank has an expert, and sends tokens to those of the others."""
    expert = Block().to(DEVICE)
    optimizer = adam(expert)
    rank, size, rows = dist.get_rank(), dist.get_world_size(), 512
    to = [rows + each for each in range(size)]
    received = [to[rank]] * size
    for _ in range(STEPS):
        optimizer.zero_grad()
        tokens = inputs(sum(to), WIDTH).requires_grad_()
        there = all_to_all_single_autograd(tokens, received, to, dist.group.WORLD)
        back = all_to_all_single_autograd(expert(there), to, received, dist.group.WORLD)
        back.square().mean().backward()
        optimizer.step()


PROGRAMS = {
    each.__name__: each
    for each in (
        ddp,
        zero,
        fsdp1,
        fsdp2,
        hsdp,
        tensor_parallel,
        gpipe,
        one_forward_one_backward,
        interleaved,
        contexts,
        experts,
    )
}

FIGURES = (
    "requested_bytes.all.peak",
    "allocated_bytes.all.peak",
    "active_bytes.all.peak",
    "reserved_bytes.all.peak",
    "allocation.all.allocated",
)


def memory_of(program: Callable[[], None]) -> dict[str, int]:
    """What the device's allocator says of a run of the program."""
    memory = torch.get_device_module(DEVICE)
    memory.synchronize()
    for _ in range(5):  # a collection may leave cycles that only then have no other owner
        if memory.memory_allocated() == 0:
            break
        gc.collect()
    assert memory.memory_allocated() == 0
    torch.accelerator.empty_cache()
    before = memory.memory_stats().get("allocation.all.allocated", 0)
    memory.reset_peak_memory_stats()
    program()
    memory.synchronize()
    stats = memory.memory_stats()
    stats["allocation.all.allocated"] -= before
    return {name: stats[name] for name in FIGURES}
