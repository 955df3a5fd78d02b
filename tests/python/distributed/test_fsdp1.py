"""FullyShardedDataParallel: the losses are those of one process with the whole batch.

Functions take a rank, and run in each; or None, and run in one process on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_on_devices
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from training import (
    DEVICE,
    Block,
    accumulate,
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


def wrapped(rank: int | None, **how: Any) -> nn.Module:
    if rank is None:
        return blocks()
    return FullyShardedDataParallel(
        blocks(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device(DEVICE, rank), **how
    )


def train_wrapped(rank: int | None, **how: Any) -> list[float]:
    net = wrapped(rank, **how)
    return train(net, adam(net), part_of(rank))


def full_shard(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.FULL_SHARD)


def shard_grad_op(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


def no_shard(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.NO_SHARD)


def hybrid(rank: int | None) -> list[float]:
    if rank is None:
        return full_shard(None)
    mesh = dist.init_device_mesh(DEVICE, (dist.get_world_size() // 2, 2))
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)


def original_parameters(rank: int | None) -> list[float]:
    return train_wrapped(rank, use_orig_params=True)


def offloaded(rank: int | None) -> list[float]:
    return train_wrapped(rank, cpu_offload=CPUOffload(offload_params=True))


def prefetched(rank: int | None) -> list[float]:
    how = {"backward_prefetch": BackwardPrefetch.BACKWARD_POST, "forward_prefetch": True, "limit_all_gathers": False}
    return train_wrapped(rank, **how)


def in_bfloat16(rank: int | None) -> list[float]:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    return train_wrapped(rank, mixed_precision=precision)


def in_float16(rank: int | None) -> list[float]:
    if rank is None:
        return full_shard(None)
    net = wrapped(rank, mixed_precision=MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16))
    return train_with_scaler(net, part_of(rank), ShardedGradScaler(device=DEVICE, init_scale=1024.0))


def checkpointed(rank: int | None) -> list[float]:
    net = wrapped(rank)
    apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))
    return train(net, adam(net), part_of(rank))


def accumulated(rank: int | None) -> list[float]:
    net = wrapped(rank)
    return train(net, adam(net), part_of(rank), backward=accumulate)


def clipped(rank: int | None) -> list[float]:
    return train_with_clipping(wrapped(rank), part_of(rank))


def bfloat16_hook(rank: int | None) -> list[float]:
    net = wrapped(rank)
    if isinstance(net, FullyShardedDataParallel):
        net.register_comm_hook(default_hooks.LowPrecisionState(dist.group.WORLD), default_hooks.bf16_compress_hook)
    return train(net, adam(net), part_of(rank))


WAYS = {
    full_shard: 1e-5,
    shard_grad_op: 1e-5,
    no_shard: 1e-5,
    hybrid: 1e-5,
    original_parameters: 1e-5,
    offloaded: 1e-5,
    prefetched: 1e-5,
    in_bfloat16: 3e-2,
    in_float16: 1e-2,
    checkpointed: 1e-5,
    accumulated: 1e-5,
    clipped: 1e-5,
    bfloat16_hook: 1e-2,
}


def state(rank: int) -> Any:
    """A trained model's full and sharded state, loaded by another; and the sums of the parameters that both summon."""
    net = wrapped(rank)
    train(net, adam(net), rank_part)
    found = []
    for kind, config in (
        (StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)),
        (StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()),
    ):
        other = wrapped(rank)
        with FullyShardedDataParallel.state_dict_type(net, kind, config):
            state = net.state_dict()
        with FullyShardedDataParallel.state_dict_type(other, kind, config):
            other.load_state_dict(state)
        with FullyShardedDataParallel.summon_full_params(net), FullyShardedDataParallel.summon_full_params(other):
            pairs = list(zip(net.named_parameters(), other.parameters(), strict=True))
            same = all(torch.equal(a, b) for (_, a), b in pairs)
            sums = {name.replace("_fsdp_wrapped_module.", ""): value.sum().item() for (name, value), _ in pairs}
        found.append((same, sums))
    return found


def summoned(rank: int) -> list[bool]:
    """What is changed while the parameters are summoned stays; gradients can be summoned too."""
    net = wrapped(rank, use_orig_params=True)
    with FullyShardedDataParallel.summon_full_params(net), torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    loss_of(net, rank_part(batches()[0])).backward()
    with FullyShardedDataParallel.summon_full_params(net, with_grads=True):
        return [
            torch.equal(parameter.cpu(), 2 * original) and parameter.grad.shape == original.shape
            for parameter, original in zip(net.parameters(), blocks().parameters(), strict=True)
        ]


def memory(rank: int) -> list[tuple[int, int]]:
    ways = ({}, {"sharding_strategy": ShardingStrategy.NO_SHARD}, {"cpu_offload": CPUOffload(offload_params=True)})
    return [memory_of_training(wrapped(rank, **how)) for how in ways]


IN_RANKS = (*WAYS, state, summoned)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(of, way, tolerance):
    expected = way(None)
    assert expected[-1] < expected[0]
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)


def test_full_and_sharded_state(of):
    for results in of(state):
        for same, sums in results:
            assert same
            assert sums == pytest.approx(sums_after_training(), rel=1e-4, abs=1e-4)


def test_parameters_of_can_be_summoned(of):
    for results in of(summoned):
        assert len(results) == 18 and all(results)


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
def test_training_loses_no_memory(size, tmp_path):
    for results in run_on_devices(size, tmp_path, memory)(memory):
        for early, late in results:
            assert late == early
