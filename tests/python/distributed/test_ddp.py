"""DistributedDataParallel: the losses are those of one process with the whole batch.

Functions take a rank, and run in each; or None, and run in one process on the CPU.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from race_modes import race_detection
from ranks import collectives_begun, run_on_devices, run_ranks
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from training import (
    BATCH,
    DEVICE,
    WIDTH,
    accumulate,
    adam,
    backward,
    batches,
    ddp,
    loss_of,
    memory_of_training,
    model,
    part_of,
    rank_part,
    train,
    train_with_clipping,
)


def train_ddp(rank: int | None, **how: Any) -> list[float]:
    net = ddp(rank, **how)
    return train(net, adam(net), part_of(rank))


def plain(rank: int | None) -> list[float]:
    return train_ddp(rank)


def with_device_ids(rank: int | None) -> list[float]:
    return train_ddp(rank, device_ids=[rank], output_device=rank)


def static_graph(rank: int | None) -> list[float]:
    return train_ddp(rank, static_graph=True)


def gradients_as_views(rank: int | None) -> list[float]:
    return train_ddp(rank, gradient_as_bucket_view=True)


def no_sync(rank: int | None) -> list[float]:
    net = ddp(rank)
    return train(net, adam(net), part_of(rank), backward=accumulate)


def clipped(rank: int | None) -> list[float]:
    return train_with_clipping(ddp(rank), part_of(rank))


def groups_of_parameters(rank: int | None) -> list[float]:
    net = ddp(rank)
    first, *others = net.parameters()
    groups = [{"params": [first], "lr": 0.1}, {"params": others, "lr": 0.01, "momentum": 0.9}]
    return train(net, torch.optim.SGD(groups), part_of(rank))


class UsesOneOfTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = model(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def unused_parameters(rank: int | None) -> list[float]:
    return train_ddp(rank, net=UsesOneOfTwo(), find_unused_parameters=True)


@race_detection("default")  # PyTorch's hook has one: docs/races.md, "Other programs"
def mixed_precision(rank: int | None) -> list[float]:
    """From the second step on: PyTorch's buckets of the first are not yet bfloat16, on any device."""
    how = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = ddp(rank, mixed_precision=how)
    backward(net, part_of(rank)(batches()[0]))
    return train(net, adam(net), part_of(rank))


def scaled(rank: int | None) -> list[float]:
    """float16 with a scaler of losses: rank 0 has an infinite one, so all skip that step. With the scales."""
    net, device = ddp(rank), "cpu" if rank is None else DEVICE
    scaler = torch.amp.GradScaler(device, init_scale=2.0**14, growth_interval=2)
    infinite = iter([1.0, 1.0, float("inf") if rank in (None, 0) else 1.0, 1.0, 1.0, 1.0])
    scales = []

    def backward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.float16):
            loss = loss_of(net, x)
        scaler.scale(loss * next(infinite)).backward()
        return loss

    def update(optimizer: torch.optim.Optimizer) -> None:
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())

    return train(net, adam(net), part_of(rank), backward=backward, update=update) + scales


WAYS = {
    plain: 1e-5,
    with_device_ids: 1e-5,
    static_graph: 1e-5,
    gradients_as_views: 1e-5,
    no_sync: 1e-5,
    clipped: 1e-5,
    groups_of_parameters: 1e-5,
    unused_parameters: 1e-5,
    mixed_precision: 3e-2,
    scaled: 1e-3,
}


def collectives_without_sync(rank: int) -> tuple[int, int]:
    """During a step without, and one with."""
    net = ddp(rank)
    x = rank_part(batches()[0])
    for _ in range(2):  # after the first step DDP makes its buckets anew
        backward(net, x)
    counts = [collectives_begun()]
    for context in (net.no_sync(), contextlib.nullcontext()):
        with context:
            backward(net, x)
        counts.append(collectives_begun())
    return counts[1] - counts[0], counts[2] - counts[1]


def without_finding_unused(rank: int) -> str:
    with pytest.raises(RuntimeError) as error:
        train_ddp(rank, net=UsesOneOfTwo())
    return str(error.value)


def uneven(rank: int) -> list[float]:
    """Rank r has 3 + r batches. The sums of the parameters at the end."""
    net = ddp(rank)
    optimizer = adam(net)
    with Join([net]):
        for batch in batches()[: 3 + rank]:
            optimizer.zero_grad()
            loss_of(net, rank_part(batch)).backward()
            optimizer.step()
    return [parameter.sum().item() for parameter in net.parameters()]


def uneven_in_one_process(size: int) -> list[float]:
    net = model()
    optimizer = adam(net)
    for step, batch in enumerate(batches()[: 3 + size - 1]):
        optimizer.zero_grad()
        for rank, x in enumerate(batch.chunk(size)):
            if step < 3 + rank:
                (loss_of(net, x) / size).backward()
        optimizer.step()
    return [parameter.sum().item() for parameter in net.parameters()]


def uneven_is_an_error(rank: int) -> str:
    net = ddp(rank)
    with pytest.raises(RuntimeError) as error, Join([net], throw_on_early_termination=True):
        for batch in batches()[: 1 + rank]:
            loss_of(net, rank_part(batch)).backward()
    return str(error.value)


def sync_batch_norm(rank: int | None) -> Any:
    """Of parts of different sizes: outputs and gradients of the input, then gradients and running statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 5), nn.BatchNorm1d(5))
    x, size = torch.randn(BATCH, 3, 8, 8), 1
    if rank is not None:
        size = dist.get_world_size()
        x = x.tensor_split([3, 4, 6][: size - 1])[rank].to(DEVICE)
        net = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net).to(DEVICE))
    x.requires_grad_()
    y = net(x)
    (y.pow(3).sum() * size).backward()  # DDP takes the mean over the ranks
    of_rows = torch.cat([y.flatten(1), x.grad.flatten(1) / size], dim=1)
    of_all = [*(parameter.grad for parameter in net.parameters()), *net.buffers()]
    return of_rows.tolist(), [each.flatten().tolist() for each in of_all]


class Counts(nn.Module):
    """Has a buffer that every rank changes in another way."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layer, self.rank = nn.Linear(1, 1), rank
        self.register_buffer("count", torch.full((3,), float(rank)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.count.add_(self.rank + 1).sum()


def buffers(rank: int) -> list[list[float]]:
    net = DistributedDataParallel(Counts(rank).to(DEVICE))
    seen = []
    for _ in range(3):
        net(torch.ones(1, 1, device=DEVICE)).sum().backward()
        seen.append(net.module.count.tolist())
    return seen


def name_of_group(rank: int) -> str:
    return dist.group.WORLD._get_backend_name()


def memory(rank: int) -> list[tuple[int, int]]:
    return [memory_of_training(ddp(rank))]


def memory_of_others(rank: int) -> list[tuple[int, int]]:
    precision = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return [
        memory_of_training(ddp(rank, static_graph=True)),
        memory_of_training(ddp(rank, gradient_as_bucket_view=True)),
        memory_of_training(ddp(rank, mixed_precision=precision)),
        memory_of_training(ddp(rank), accumulate),
    ]


IN_RANKS = (
    *WAYS,
    collectives_without_sync,
    without_finding_unused,
    uneven,
    uneven_is_an_error,
    sync_batch_norm,
    buffers,
    name_of_group,
    memory,
)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(of, way, tolerance):
    expected = way(None)
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)


def test_no_sync_leaves_out_the_collectives(of):
    for without, with_sync in of(collectives_without_sync):
        assert (without, with_sync) == (0, 2)


def test_parameters_that_get_no_gradient_are_an_error(of):
    for rank, message in enumerate(of(without_finding_unused)):
        assert "find_unused_parameters=True" in message
        assert f"did not receive grad for rank {rank}: 6 7" in message


def test_ranks_with_more_batches_continue_without_the_others(of):
    results = of(uneven)
    for sums in results:
        assert sums == pytest.approx(uneven_in_one_process(len(results)), rel=1e-5, abs=1e-5)


def test_ranks_with_more_batches_are_notified(of):
    first, *others = of(uneven_is_an_error)
    assert first == "Rank 0 exhausted all inputs."
    assert others == ["Detected at least one rank that exhausted inputs. Throwing across all ranks."] * len(others)


def test_batch_norm_over_all_ranks_is_that_of_one_process(of):
    results = of(sync_batch_norm)
    of_rows, of_all = sync_batch_norm(None)
    rows = [row for rows_of_rank, _ in results for row in rows_of_rank]
    assert rows == [pytest.approx(row, rel=1e-4, abs=1e-5) for row in of_rows]
    for _, found in results:
        assert found == [pytest.approx(each, rel=1e-4, abs=1e-4) for each in of_all]


def test_buffers_are_those_of_rank_0_at_each_step(of):
    for rank, counts in enumerate(of(buffers)):
        assert counts == [[float(step + rank + 1)] * 3 for step in range(3)]


def test_the_default_group_bears_no_name_of_another_backend(of):
    """DDP takes a group named gloo for one, and dies with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    assert set(of(name_of_group)) == {"custom"}


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


@pytest.mark.full
def test_training_with_detailed_debugging(tmp_path):
    environment = {"TORCH_OPENREG_DEVICES": "2", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    expected = plain(None)
    for losses in run_ranks(plain, 2, tmp_path, environment=environment):
        assert losses == pytest.approx(expected, rel=1e-5)
