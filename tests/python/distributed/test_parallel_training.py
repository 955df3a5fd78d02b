"""Training by several ranks: the losses are those of one process with the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, WIDTH = 6, 8, 16


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.LayerNorm(WIDTH))


def batches() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(BATCH, WIDTH) for _ in range(STEPS)]


def train(
    net: nn.Module, optimizer: Any, part: Callable[[torch.Tensor], torch.Tensor], sharded: bool = True
) -> list[float]:
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        x = part(batch)
        loss = (net(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if sharded and dist.is_initialized():
            dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


def rank_part(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(dist.get_world_size())[dist.get_rank()].to("openreg")


def ddp(rank: int, **how: Any) -> list[float]:
    net = DistributedDataParallel(model().to("openreg"), bucket_cap_mb=0.002, **how)
    return train(net, adam(net), rank_part)


def ddp_static(rank: int) -> list[float]:
    return ddp(rank, static_graph=True)


def ddp_views(rank: int) -> list[float]:
    return ddp(rank, gradient_as_bucket_view=True)


def zero(rank: int) -> list[float]:
    net = DistributedDataParallel(model().to("openreg"))
    return train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2), rank_part)


def fsdp1(rank: int) -> list[float]:
    net = FullyShardedDataParallel(model().to("openreg"), device_id=torch.device("openreg", 0))
    return train(net, adam(net), rank_part)


def fsdp2(rank: int, **how: Any) -> list[float]:
    net = model().to("openreg")
    for layer in (net[0], net[2]):
        fully_shard(layer, **how)
    fully_shard(net, **how)
    return train(net, adam(net), rank_part)


def fsdp2_keeps_parameters(rank: int) -> list[float]:
    return fsdp2(rank, reshard_after_forward=False)


def fsdp2_offloads(rank: int) -> list[float]:
    return fsdp2(rank, offload_policy=CPUOffloadPolicy())


def fsdp2_in_bfloat16(rank: int) -> list[float]:
    return fsdp2(rank, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def tensor_parallel(rank: int) -> list[float]:
    mesh = dist.init_device_mesh("openreg", (dist.get_world_size(),))
    net = parallelize_module(model().to("openreg"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    # One by one: the layer that is not split has parameters of another class.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    return train(net, optimizer, lambda batch: batch.to("openreg"), sharded=False)


def logged_times(rank: int) -> dict[str, int]:
    """What DDP has measured of its steps, in nanoseconds."""
    net = DistributedDataParallel(model().to("openreg"))
    train(net, adam(net), rank_part)
    data = net._get_ddp_logging_data()
    return {name: data[f"avg_{name}_time"] for name in ("forward_compute", "backward_compute", "backward_comm")}


def memory(rank: int) -> list[tuple[int, int]]:
    """Bytes that are allocated after 20 steps and after 200, with DDP and with FSDP."""
    found = []
    for wrap in (DistributedDataParallel, fully_shard):
        net = wrap(model().to("openreg"))
        optimizer = adam(net)
        after = []
        for step in range(1, 201):
            optimizer.zero_grad()
            net(rank_part(batches()[0])).square().mean().backward()
            optimizer.step()
            if step in (20, 200):
                torch.accelerator.synchronize()
                after.append(torch.accelerator.memory_allocated())
        found.append((after[0], after[1]))
    return found


WAYS = {
    ddp: 1e-5,
    ddp_static: 1e-5,
    ddp_views: 1e-5,
    zero: 1e-5,
    fsdp1: 1e-5,
    fsdp2: 1e-5,
    fsdp2_keeps_parameters: 1e-5,
    fsdp2_offloads: 1e-5,
    fsdp2_in_bfloat16: 3e-2,
    tensor_parallel: 1e-5,
}


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.full)])
def losses_of_ranks(request, tmp_path_factory):
    return run_ranks(run_in_turn, request.param, tmp_path_factory.mktemp("ranks"), *WAYS, logged_times, memory)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(losses_of_ranks, way, tolerance):
    net = model()
    expected = train(net, adam(net), lambda batch: batch)
    assert expected[-1] < expected[0]
    for losses in losses_of_ranks:
        assert losses[way.__name__] == pytest.approx(expected, rel=tolerance)


def test_ddp_measures_its_steps(losses_of_ranks):
    for results in losses_of_ranks:
        for time in results["logged_times"].values():
            assert 1_000 < time < 10_000_000_000


def test_training_loses_no_memory(losses_of_ranks):
    for results in losses_of_ranks:
        for early, late in results["memory"]:
            assert late == early
