"""`torch.distributed`: two processes, each with a device, over whatever backend is registered for the device.

Collectives follow the current stream: they read what it wrote before, and `wait()` orders it after them. A process
group that returns early gives right results only if the other rank happens to be quick; the second rank is slow here.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from backend_conformance import Device, Level, check, missing, not_applicable, wrong
from backend_conformance.evidence import has_numpy, value
from backend_conformance.verdicts import Verdict, verdict_of

HOOK = (
    "c10d::Backend::broadcast, allreduce, allgather, _allgather_base, _reduce_scatter_base, alltoall_base, send, recv; "
    "torch.distributed.Backend.register_backend"
)
SECONDS = 120.0


def rank_main(device: Device, name: str, rank: int, folder: str, results: Any) -> None:
    """A rank, in a spawned process."""
    try:
        device.load()
        torch.accelerator.set_device_index(rank)
        dist.init_process_group(init_method=f"file://{folder}/store", rank=rank, world_size=2)
        globals()[name](device, rank)
        dist.barrier()
        dist.destroy_process_group()
        results.put((rank, "", ""))
    except BaseException as error:
        results.put((rank, verdict_of(error).value, f"rank {rank}: {type(error).__name__}: {error}"))


def run(device: Device, function: Callable[[Device, int], None]) -> None:
    """Runs a function of this module in two processes."""
    if not dist.is_available() or device.name not in dist.Backend.default_device_backend_map:
        not_applicable(f"no backend of torch.distributed is registered for {device.name}")
    assert device.other
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        results = context.Queue()
        ranks = [
            context.Process(target=rank_main, args=(device, function.__name__, rank, folder, results))
            for rank in range(2)
        ]
        for each in ranks:
            each.start()
        try:
            found = [results.get(timeout=SECONDS)]
            if not found[0][1]:
                found.append(results.get(timeout=SECONDS))
        except Exception:
            wrong(f"the ranks ended with {[each.exitcode for each in ranks]}, without a result")
        finally:
            for each in ranks:
                each.join(5)
                each.kill()
    for _, verdict, message in found:
        if verdict == Verdict.MISSING.value:
            missing(message)
        if verdict == Verdict.WRONG.value:
            wrong(message)
        if verdict:
            raise RuntimeError(message)


def collectives(device: Device, rank: int) -> None:
    where = device.at(rank)

    def mine() -> torch.Tensor:
        return torch.arange(4.0, device=where) + 10 * rank

    x = mine()
    dist.all_reduce(x)
    device.cpu_equal(x, 2 * torch.arange(4.0) + 10)
    for operation, wanted in ((dist.ReduceOp.MAX, torch.arange(4.0) + 10), (dist.ReduceOp.MIN, torch.arange(4.0))):
        x = mine()
        dist.all_reduce(x, op=operation)
        device.cpu_equal(x, wanted)
    x = mine()
    dist.broadcast(x, src=1)
    device.cpu_equal(x, torch.arange(4.0) + 10)
    parts = [torch.zeros(4, device=where) for _ in range(2)]
    dist.all_gather(parts, mine())
    device.cpu_equal(torch.stack(parts), torch.stack([torch.arange(4.0), torch.arange(4.0) + 10]))
    whole = torch.zeros(8, device=where)
    dist.all_gather_into_tensor(whole, mine())
    device.cpu_equal(whole, torch.cat([torch.arange(4.0), torch.arange(4.0) + 10]))
    half = torch.zeros(2, device=where)
    dist.reduce_scatter_tensor(half, mine())
    device.cpu_equal(half, 2 * torch.arange(2.0) + 10 + 4 * rank)
    swapped = torch.zeros(4, device=where)
    dist.all_to_all_single(swapped, mine())
    start = 2 * rank
    device.cpu_equal(swapped, torch.tensor([start, start + 1.0, start + 10, start + 11]))
    x = mine().view(2, 2).t()  # strides
    dist.all_reduce(x)
    device.cpu_equal(x, (2 * torch.arange(4.0) + 10).view(2, 2).t())
    x = mine()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    device.cpu_equal(x, torch.arange(4.0))
    if has_numpy():  # PyTorch converts objects by it
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": 0}, {"rank": 1}]


@check(level=Level.COMPLETE, hook=HOOK, needs=("distributed", "several_devices"), timeout=150.0)
def collectives_compute(device: Device) -> None:
    """Reductions, broadcasts, gathers, exchanges and messages between two ranks have the right values.

    `init_process_group` without a name takes the backend that is registered for the accelerator.
    """
    run(device, collectives)


def order(device: Device, rank: int) -> None:
    x = torch.zeros(1 << 14, device=device.at(rank))
    dist.all_reduce(x)
    for number in range(1, 5):
        if rank == 1:
            time.sleep(0.2)  # the other rank has to wait
        device.enough_work(torch.accelerator.current_stream())
        x.fill_(number)
        work = dist.all_reduce(x, async_op=number % 2 == 0)
        if work is not None:
            work.wait()
        y = x * 10
        got = value(y)
        assert got == 20 * number, f"after a collective the stream read {got / 10}, not {2 * number}"
        torch.accelerator.synchronize()


@check(level=Level.COMPLETE, hook="c10d::Work::wait", needs=("distributed", "several_devices"), timeout=150.0)
def collectives_are_ordered_with_streams(device: Device) -> None:
    """A collective reads what the current stream wrote before, and the stream reads the result after `wait`.

    A process group that returns early leaves the values of this rank alone.
    """
    run(device, order)


def model(where: torch.device | str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(5)
    made = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(where)
    return made, torch.linspace(-1, 1, 32).view(8, 4).to(where)


def trained_alone() -> list[torch.Tensor]:
    module, x = model("cpu")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in module.parameters()]


def train(device: Device, rank: int, module: nn.Module, x: torch.Tensor, whole: Callable[[nn.Parameter], Any]) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        module(x[4 * rank : 4 * rank + 4]).square().mean().backward()
        optimizer.step()
    for each, wanted in zip(module.parameters(), trained_alone(), strict=True):
        device.cpu_equal(whole(each), wanted, rtol=5e-3, atol=5e-3)


def data_parallel(device: Device, rank: int) -> None:
    module, x = model(device.at(rank))
    train(device, rank, nn.parallel.DistributedDataParallel(module), x, lambda each: each)


@check(level=Level.COMPLETE, hook="c10d::Work::getFuture", needs=("distributed", "several_devices"), timeout=150.0)
def data_parallel_training_follows_one_process(device: Device) -> None:
    """DDP on two ranks, each with half of the batch, takes the steps of one process with the whole batch.

    DDP's reducer reads the first element of the future of an `allreduce`.
    """
    run(device, data_parallel)


def sharded(device: Device, rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module, x = model(device.at(rank))
    mesh = init_device_mesh(device.name, (2,))
    for layer in (module[0], module[2]):  # type: ignore[index]
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    train(device, rank, module, x, lambda each: each.full_tensor())  # type: ignore[attr-defined]


@check(
    level=Level.COMPLETE,
    hook="_allgather_base, _reduce_scatter_base",
    needs=("distributed", "several_devices"),
    timeout=150.0,
)
def sharded_training_follows_one_process(device: Device) -> None:
    """FSDP2 on two ranks takes the steps of one process with the whole batch.

    It gathers parameters and scatters gradients on streams of its own, and frees storages between.
    """
    run(device, sharded)
