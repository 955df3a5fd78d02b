"""What DistributedDataParallel does with its buckets: hooks of gradients, and when they are reduced.

Functions take a rank, and run in each; or None, and run in one process on the CPU.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_on_devices
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from training import (
    DEVICE,
    WIDTH,
    adam,
    backward,
    batches,
    ddp,
    memory_of_training,
    part_of,
    rank_part,
    train,
)


def hooked(rank: int | None, hook: Any, state: Any = None) -> list[float]:
    net = ddp(rank)
    if rank is not None:
        net.register_comm_hook(state, hook)
    return train(net, adam(net), part_of(rank))


def all_reduce_hook(rank: int | None) -> list[float]:
    return hooked(rank, default_hooks.allreduce_hook)


def float16_hook(rank: int | None) -> list[float]:
    return hooked(rank, default_hooks.fp16_compress_hook)


def bfloat16_hook(rank: int | None) -> list[float]:
    return hooked(rank, default_hooks.bf16_compress_hook)


def bfloat16_wrapper(rank: int | None) -> list[float]:
    return hooked(rank, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook))


def power_sgd(rank: int | None) -> list[float]:
    """Of full rank: without loss. Each bucket takes three collectives, one after the other in callbacks."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=WIDTH, start_powerSGD_iter=2, min_compression_rate=0.1
    )
    return hooked(rank, powerSGD_hook.powerSGD_hook, state)


def quantized(rank: int | None) -> list[float]:
    """To 8 bits: all ranks gather the others' scales and numbers in callbacks."""
    return hooked(rank, quantization_hooks.quantization_pertensor_hook, dist.group.WORLD)


def reduce_and_gather(state, bucket):  # DDP looks at annotations, and these would be strings
    buffer, size = bucket.buffer(), dist.get_world_size()
    padded = nn.functional.pad(buffer, (0, -buffer.numel() % size))
    part = torch.empty(padded.numel() // size, device=DEVICE)
    work = dist.reduce_scatter_tensor(part, padded, dist.ReduceOp.AVG, async_op=True)

    def gather(done: Any) -> torch.Tensor:
        padded.record_stream(torch.accelerator.current_stream())  # that of callbacks
        dist.all_gather_into_tensor(padded, done.value()[0])
        return buffer.copy_(padded[: buffer.numel()])

    return work.get_future().then(gather)


def own_hook(rank: int | None) -> list[float]:
    return hooked(rank, reduce_and_gather)


WAYS = {
    all_reduce_hook: 1e-5,
    float16_hook: 1e-4,
    bfloat16_hook: 1e-3,
    bfloat16_wrapper: 1e-3,
    power_sgd: 1e-4,
    quantized: 2e-2,
    own_hook: 1e-5,
}


def communicates_during_backward(rank: int) -> bool:
    """Whether the last layer's gradient becomes the mean over the ranks while the backward pass is held up before the
    first layer."""
    net = ddp(rank, gradient_as_bucket_view=True)
    first, last = net.module[0], net.module[-1]
    x = rank_part(batches()[0])
    backward(net, x)  # after the first step DDP makes its buckets anew: the last layer's is another than the first's
    net.zero_grad()
    elsewhere = torch.Stream(DEVICE)  # reads without waiting for the backward pass
    size = dist.get_world_size()
    mean = len(x) * sum(range(1, size + 1)) / size
    seen = []

    def hold_up(_: torch.Tensor) -> None:
        end = time.monotonic() + 10
        while not seen and time.monotonic() < end:
            with elsewhere:
                if last.bias.grad[0].item() == mean:
                    seen.append(first.bias.grad is None)

    def forward_hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.register_hook(hold_up)

    first.register_forward_hook(forward_hook)
    (net(x).sum() * (rank + 1)).backward()  # the gradient of the last bias: the factor, for each row
    return seen == [True]


def logged_times(rank: int) -> dict[str, int]:
    """What DDP has measured of its steps, in nanoseconds."""
    net = ddp(rank)
    train(net, adam(net), rank_part)
    data = net._get_ddp_logging_data()
    names = ("forward_compute", "backward_compute", "backward_comm", "backward_compute_comm_overlap")
    return {name: data[f"avg_{name}_time"] for name in names}


def memory(rank: int) -> list[tuple[int, int]]:
    found = []
    for hook, state in (
        (default_hooks.bf16_compress_hook, None),
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
        (quantization_hooks.quantization_pertensor_hook, dist.group.WORLD),
        (reduce_and_gather, None),
    ):
        net = ddp(rank)
        net.register_comm_hook(state, hook)
        found.append(memory_of_training(net))
    return found


IN_RANKS = (*WAYS, logged_times)
if os.environ.get("TORCH_OPENREG_DETECT_RACES", "0") == "0":
    IN_RANKS += (communicates_during_backward,)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_with_a_hook_are_those_of_one_process(of, way, tolerance):
    expected = way(None)
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)


@pytest.mark.no_race_detection("it looks at a gradient while it is reduced")
def test_buckets_are_reduced_during_the_backward_pass(of):
    assert all(of(communicates_during_backward))


def test_ddp_measures_its_steps(of):
    for times in of(logged_times):
        for nanoseconds in times.values():
            assert 1_000 < nanoseconds < 10_000_000_000


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
def test_training_with_hooks_loses_no_memory(size, tmp_path):
    for results in run_on_devices(size, tmp_path, memory)(memory):
        for early, late in results:
            assert late == early
