"""A training step split three ways: by layers, by the batch and by the matrices. All ranks are threads of this process.

    TORCH_OPENREG_DEVICES=64 python examples/many_ranks.py --layers 4 --data 4 --matrices 4

Each thread has its own device and its own member of each process group, so PyTorch treats it like a process started by
`torchrun`. This tests a layout of 64 ranks on a laptop. The step is compared with that of one process with the whole
model and the whole batch. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch._dynamo.config
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _set_thread_isolation_mode
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg, _uninstall_threaded_pg

WIDTH, MICROBATCHES = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def make_model(blocks: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(blocks)])


def make_batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(samples, WIDTH, generator=torch.Generator().manual_seed(1))
    return x, x.roll(1, 1)


def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().mean()


def run_as_threads(function: Callable[[int], Any], ranks: int, timeout: float = 60) -> list[Any]:
    """Runs `function(rank)` in one thread per rank of a default process group, and returns the results.

    Rank i has device i. Two ranks on one stream would deadlock: the second one's part of a collective would start only
    after the first one's has completed, which needs both.
    """
    if torch.openreg.device_count() < ranks:
        raise ValueError(f"{ranks} ranks need TORCH_OPENREG_DEVICES={ranks} (got {torch.openreg.device_count()})")
    store, results, errors = dist.HashStore(), [None] * ranks, []

    def main(rank: int) -> None:
        torch.openreg.set_device(rank)
        # All threads share this cache, which would mix up the devices of different ranks.
        torch._dynamo.config.fake_tensor_cache_enabled = False
        try:
            # Backward passes must run on the thread that calls them: other threads belong to no rank.
            with torch.autograd.set_multithreading_enabled(False):
                dist.init_process_group(store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout))
                try:
                    results[rank] = function(rank)
                finally:
                    dist.destroy_process_group()
        except BaseException as error:
            errors.append(error)

    # From here on torch.distributed keeps its state per thread instead of per process.
    _install_threaded_pg()
    _set_thread_isolation_mode(True)
    lock, ShardingPropagator._fake_mode_lock = ShardingPropagator._fake_mode_lock, threading.Lock()
    try:
        threads = [threading.Thread(target=main, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        ShardingPropagator._fake_mode_lock = lock
        _set_thread_isolation_mode(False)
        _uninstall_threaded_pg()
    if errors:
        raise errors[0]
    return results


def split_step(model: nn.Sequential, layers: int, data: int, matrices: int) -> tuple[float, float]:
    """Returns the loss, and the largest difference between an element of a gradient and that of `model`."""
    x, target = make_batch(MICROBATCHES * data)

    def step(rank: int) -> tuple[float | None, float]:
        device = torch.device("openreg", rank)
        mesh = dist.init_device_mesh("openreg", (layers, data, matrices), mesh_dim_names=("layers", "data", "matrices"))
        index, part = mesh["layers"].get_local_rank(), mesh["data"].get_local_rank()
        block = copy.deepcopy(model[index]).to(device)
        block.zero_grad()
        parallelize_module(block, mesh["matrices"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
        stage = PipelineStage(block, index, layers, device, group=mesh["layers"].get_group())
        schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)

        losses: list[torch.Tensor] = []
        inputs = [x.chunk(data)[part].to(device)] if stage.is_first else []
        wanted = {"target": target.chunk(data)[part].to(device), "losses": losses} if stage.is_last else {}
        schedule.step(*inputs, **wanted)

        difference = max(
            (own.grad.full_tensor().cpu() - whole.grad).abs().max().item()
            for own, whole in zip(block.parameters(), model[index].parameters(), strict=True)
        )
        return torch.stack(losses).mean().item() if losses else None, difference

    results = run_as_threads(step, layers * data * matrices)
    losses = [loss for loss, _ in results if loss is not None]
    return sum(losses) / len(losses), max(difference for _, difference in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "data", "matrices"):
        parser.add_argument(f"--{name}", type=int, default=4, help="number of parts (default: 4)")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the kernels are small
    # PyTorch warns that gathering a tensor that is split twice takes two collectives; only the comparison does that.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)

    model = make_model(args.layers)
    expected = loss_of(model(make_batch(MICROBATCHES * args.data)[0]), make_batch(MICROBATCHES * args.data)[1])
    expected.backward()
    start = time.perf_counter()
    loss, difference = split_step(model, args.layers, args.data, args.matrices)
    report = {
        "ranks": args.layers * args.data * args.matrices,
        "loss": loss,
        "loss of one process": expected.item(),
        "largest difference of a gradient": difference,
        "seconds": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
