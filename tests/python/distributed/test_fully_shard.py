"""fully_shard: the losses are those of one process with the whole batch.

Functions take a rank, and run in each; or None, and run in one process on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import collectives_begun, run_on_devices
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from training import (
    DEVICE,
    Block,
    adam,
    batches,
    blocks,
    loss_of,
    memory_of_training,
    part_of,
    rank_part,
    sums_after_training,
    train,
    train_with_clipping,
    train_with_scaler,
)


def sharded(rank: int | None, net: nn.Sequential | None = None, **how: Any) -> nn.Module:
    """Each block is a group of parameters."""
    net = net or blocks()
    if rank is None:
        return net
    net = net.to(DEVICE) if "offload_policy" not in how else net
    for block in net:
        fully_shard(block, **how)
    return fully_shard(net, **how)


def train_sharded(rank: int | None, **how: Any) -> list[float]:
    net = sharded(rank, **how)
    return train(net, adam(net), part_of(rank))


def plain(rank: int | None) -> list[float]:
    return train_sharded(rank)


def parameters_kept(rank: int | None) -> list[float]:
    return train_sharded(rank, reshard_after_forward=False)


def parameters_kept_by_pairs(rank: int | None) -> list[float]:
    return train_sharded(rank, reshard_after_forward=2)


def offloaded(rank: int | None) -> list[float]:
    return train_sharded(rank, offload_policy=CPUOffloadPolicy())


def in_bfloat16(rank: int | None) -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    return train_sharded(rank, mp_policy=policy)


def pairs() -> dist.DeviceMesh:
    return dist.init_device_mesh(DEVICE, (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))


def in_two_dimensions(rank: int | None) -> list[float]:
    """Sharded among pairs, replicated by two."""
    if rank is None:
        return plain(None)
    return train_sharded(rank, mesh=pairs())


def prefetched(rank: int | None) -> list[float]:
    net = sharded(rank)
    if isinstance(net, FSDPModule):
        first, second, third = net
        first.set_modules_to_forward_prefetch([second, third])
        third.set_modules_to_backward_prefetch([second, first])
    return train(net, adam(net), part_of(rank))


def checkpointed(rank: int | None) -> list[float]:
    net = blocks()
    apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))
    return train_sharded(rank, net=net)


def accumulate(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The gradients of two halves, of which only the second one's are reduced."""
    losses = []
    for is_last, half in zip((False, True), x.chunk(2), strict=True):
        if isinstance(net, FSDPModule):
            net.set_requires_gradient_sync(is_last)
            net.set_is_last_backward(is_last)
            net.set_reshard_after_backward(is_last)
        losses.append(loss_of(net, half) / 2)
        losses[-1].backward()
    return losses[0].detach() + losses[1].detach()


def accumulated(rank: int | None) -> list[float]:
    net = sharded(rank)
    return train(net, adam(net), part_of(rank), backward=accumulate)


def clipped(rank: int | None) -> list[float]:
    return train_with_clipping(sharded(rank), part_of(rank))


def in_float16(rank: int | None) -> list[float]:
    if rank is None:
        return plain(None)
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
    return train_with_scaler(sharded(rank, mp_policy=policy), part_of(rank), scaler)


def from_meta(rank: int | None) -> list[float]:
    """Made without memory. The values are those of rank 0."""
    if rank is None:
        return plain(None)
    with torch.device("meta"):
        net = blocks()
    for block in net:
        fully_shard(block)
    fully_shard(net).to_empty(device=DEVICE)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(net, blocks().state_dict() if rank == 0 else {}, options=options)
    return train(net, adam(net), part_of(rank))


WAYS = {
    plain: 1e-5,
    parameters_kept: 1e-5,
    parameters_kept_by_pairs: 1e-5,
    offloaded: 1e-5,
    in_bfloat16: 3e-2,
    in_two_dimensions: 1e-5,
    prefetched: 1e-5,
    checkpointed: 1e-5,
    accumulated: 1e-5,
    clipped: 1e-5,
    in_float16: 1e-2,
    from_meta: 1e-5,
}


def state(rank: int) -> Any:
    """A trained model's sharded state, loaded by another; and its full state, which rank 0 has on the CPU."""
    net = sharded(rank)
    train(net, adam(net), rank_part)
    other = sharded(rank)
    other.load_state_dict(net.state_dict())
    same = all(
        torch.equal(a.to_local(), b.to_local()) for a, b in zip(net.parameters(), other.parameters(), strict=True)
    )
    full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return same, {name: value.sum().item() for name, value in full.items()}


def collectives_before_the_first_block(rank: int) -> list[int]:
    """How many are begun before the first block computes: without and with prefetching."""
    counts = []
    for prefetch in (False, True):
        net = sharded(rank)
        x = rank_part(batches()[0])
        net(x).sum().backward()
        if prefetch:
            net[0].set_modules_to_forward_prefetch([net[1], net[2]])
        first = []
        net[0].layers.register_forward_pre_hook(lambda *args, first=first: first.append(collectives_begun()))
        before = collectives_begun()
        net(x)
        counts.append(first[0] - before)
    return counts


def memory(rank: int) -> list[tuple[int, int]]:
    return [memory_of_training(sharded(rank))]


def memory_of_others(rank: int) -> list[tuple[int, int]]:
    prefetching, checkpointing = sharded(rank), blocks()
    prefetching[0].set_modules_to_forward_prefetch([prefetching[1], prefetching[2]])
    apply_activation_checkpointing(checkpointing, check_fn=lambda module: isinstance(module, Block))
    return [
        memory_of_training(net, *how)
        for net, *how in (
            (prefetching,),
            (sharded(rank, net=checkpointing),),
            (sharded(rank, offload_policy=CPUOffloadPolicy()),),
            (sharded(rank, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)),),
            (sharded(rank), accumulate),
        )
    ]


IN_RANKS = (*WAYS, state, collectives_before_the_first_block, memory)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(of, way, tolerance):
    expected = way(None)
    assert expected[-1] < expected[0]
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)


def test_state_of_a_sharded_model(of):
    for rank, (same, full) in enumerate(of(state)):
        assert same
        assert full == (pytest.approx(sums_after_training(), rel=1e-4, abs=1e-4) if rank == 0 else {})


def test_prefetching_gathers_the_next_blocks_before_the_first_computes(of):
    for without, with_prefetching in of(collectives_before_the_first_block):
        assert (without, with_prefetching) == (1, 3)


def test_training_loses_no_memory(of):
    for results in of(memory):
        for early, late in results:
            assert late == early


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
def test_other_ways_to_train_lose_no_memory(size, tmp_path):
    for results in run_on_devices(size, tmp_path, memory_of_others)(memory_of_others):
        for early, late in results:
            assert late == early
