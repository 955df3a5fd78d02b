"""fully_shard and FullyShardedDataParallel (fsdp1): the losses are those of one process with the whole batch.

Functions take a rank, and run in each; or None, and run in one process on the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_on_devices
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
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
    train,
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
        waits = isinstance(net, FullyShardedDataParallel) and not is_last
        with net.no_sync() if waits else contextlib.nullcontext():
            losses.append(loss_of(net, half) / 2)
            losses[-1].backward()
    return losses[0].detach() + losses[1].detach()


def accumulated(rank: int | None) -> list[float]:
    net = sharded(rank)
    return train(net, adam(net), part_of(rank), backward=accumulate)


def clip_and_step(net: nn.Module) -> Callable[[torch.optim.Optimizer], None]:
    def update(optimizer: torch.optim.Optimizer) -> None:
        clip = getattr(net, "clip_grad_norm_", lambda norm: nn.utils.clip_grad_norm_(net.parameters(), norm))
        clip(0.1)
        optimizer.step()

    return update


def clipped(rank: int | None) -> list[float]:
    net = sharded(rank)
    return train(net, torch.optim.SGD(net.parameters(), lr=1), part_of(rank), update=clip_and_step(net))


def scaled(rank: int | None, net: nn.Module, scaler: torch.amp.GradScaler) -> list[float]:
    def backward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = loss_of(net, x)
        scaler.scale(loss).backward()
        return loss

    def update(optimizer: torch.optim.Optimizer) -> None:
        scaler.step(optimizer)
        scaler.update()

    return train(net, adam(net), part_of(rank), backward=backward, update=update)


def in_float16(rank: int | None) -> list[float]:
    if rank is None:
        return plain(None)
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    return scaled(rank, sharded(rank, mp_policy=policy), torch.amp.GradScaler(DEVICE, init_scale=1024.0))


def from_meta(rank: int | None) -> list[float]:
    """Made without memory; the values are those of rank 0."""
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


def wrapped(rank: int | None, **how: Any) -> nn.Module:
    if rank is None:
        return blocks()
    return FullyShardedDataParallel(
        blocks(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device(DEVICE, rank), **how
    )


def train_wrapped(rank: int | None, **how: Any) -> list[float]:
    net = wrapped(rank, **how)
    return train(net, adam(net), part_of(rank))


def fsdp1_full_shard(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.FULL_SHARD)


def fsdp1_shard_grad_op(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


def fsdp1_no_shard(rank: int | None) -> list[float]:
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.NO_SHARD)


def fsdp1_hybrid(rank: int | None) -> list[float]:
    if rank is None:
        return plain(None)
    return train_wrapped(rank, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=pairs())


def fsdp1_original_parameters(rank: int | None) -> list[float]:
    return train_wrapped(rank, use_orig_params=True)


def fsdp1_offloaded(rank: int | None) -> list[float]:
    return train_wrapped(rank, cpu_offload=CPUOffload(offload_params=True))


def fsdp1_prefetched(rank: int | None) -> list[float]:
    how = {"backward_prefetch": BackwardPrefetch.BACKWARD_POST, "forward_prefetch": True, "limit_all_gathers": False}
    return train_wrapped(rank, **how)


def fsdp1_in_bfloat16(rank: int | None) -> list[float]:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    return train_wrapped(rank, mixed_precision=precision)


def fsdp1_in_float16(rank: int | None) -> list[float]:
    if rank is None:
        return plain(None)
    net = wrapped(rank, mixed_precision=MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16))
    return scaled(rank, net, ShardedGradScaler(device=DEVICE, init_scale=1024.0))


def fsdp1_checkpointed(rank: int | None) -> list[float]:
    net = wrapped(rank)
    apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))
    return train(net, adam(net), part_of(rank))


def fsdp1_accumulated(rank: int | None) -> list[float]:
    net = wrapped(rank)
    return train(net, adam(net), part_of(rank), backward=accumulate)


def fsdp1_clipped(rank: int | None) -> list[float]:
    net = wrapped(rank)
    return train(net, torch.optim.SGD(net.parameters(), lr=1), part_of(rank), update=clip_and_step(net))


def fsdp1_bfloat16_hook(rank: int | None) -> list[float]:
    net = wrapped(rank)
    if isinstance(net, FullyShardedDataParallel):
        net.register_comm_hook(default_hooks.LowPrecisionState(dist.group.WORLD), default_hooks.bf16_compress_hook)
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
    fsdp1_full_shard: 1e-5,
    fsdp1_shard_grad_op: 1e-5,
    fsdp1_no_shard: 1e-5,
    fsdp1_hybrid: 1e-5,
    fsdp1_original_parameters: 1e-5,
    fsdp1_offloaded: 1e-5,
    fsdp1_prefetched: 1e-5,
    fsdp1_in_bfloat16: 3e-2,
    fsdp1_in_float16: 1e-2,
    fsdp1_checkpointed: 1e-5,
    fsdp1_accumulated: 1e-5,
    fsdp1_clipped: 1e-5,
    fsdp1_bfloat16_hook: 1e-2,
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


def fsdp1_state(rank: int) -> Any:
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


def collectives_before_the_first_block(rank: int) -> list[int]:
    """How many are begun before the first block computes: without and with prefetching."""
    device = torch.device(DEVICE, rank)
    counts = []
    for prefetch in (False, True):
        net = sharded(rank)
        x = rank_part(batches()[0])
        net(x).sum().backward()
        if prefetch:
            net[0].set_modules_to_forward_prefetch([net[1], net[2]])
        number = dist.group.WORLD._get_backend(device)._get_sequence_number_for_group
        first = []
        net[0].layers.register_forward_pre_hook(lambda *args, first=first, number=number: first.append(number()))
        before = number()
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
            (wrapped(rank),),
            (wrapped(rank, sharding_strategy=ShardingStrategy.NO_SHARD),),
            (wrapped(rank, cpu_offload=CPUOffload(offload_params=True)),),
        )
    ]


IN_RANKS = (*WAYS, state, fsdp1_state, summoned, collectives_before_the_first_block, memory)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(of, way, tolerance):
    expected = way(None)
    assert expected[-1] < expected[0]
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)


def trained_sums() -> dict[str, float]:
    net = blocks()
    train(net, adam(net), part_of(None))
    return {name: value.sum().item() for name, value in net.state_dict().items()}


def test_state_of_a_sharded_model(of):
    for rank, (same, full) in enumerate(of(state)):
        assert same
        assert full == (pytest.approx(trained_sums(), rel=1e-4, abs=1e-4) if rank == 0 else {})


def test_state_of_fsdp1(of):
    for results in of(fsdp1_state):
        for same, sums in results:
            assert same
            assert sums == pytest.approx(trained_sums(), rel=1e-4, abs=1e-4)


def test_parameters_of_fsdp1_can_be_summoned(of):
    for results in of(summoned):
        assert len(results) == 18 and all(results)


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
