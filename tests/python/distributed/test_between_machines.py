"""Ranks that have only a network in common: it is slow, loses packets, and is cut."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from network import INTERFACE, SWITCH, Network, address, enter
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training import adam, model, rank_part, train, whole

pytestmark = pytest.mark.full


@contextmanager
def network(size: int, **how: Any) -> Iterator[Network]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Network(size, **how))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces: {getattr(error, 'stderr', None) or error}")
        yield made


def run(function: Any, made: Network, folder: Any, *args: Any) -> list[Any]:
    environment = {"GLOO_SOCKET_IFNAME": INTERFACE}
    size = len(made.namespaces)
    return run_ranks(in_namespace, size, folder, function, made.namespaces, *args, backend="", environment=environment)


def in_namespace(rank: int, function: Any, namespaces: list[str], *args: Any) -> Any:
    enter(namespaces[rank])
    dist.init_process_group(
        init_method=f"tcp://{address(0)}:29500",
        rank=rank,
        world_size=len(namespaces),
        timeout=timedelta(seconds=10),
    )
    return function(rank, *args)


def train_ddp(rank: int) -> list[float]:
    net = DistributedDataParallel(model().to(DEVICE), bucket_cap_mb=0.002)
    return train(net, adam(net), rank_part)


def test_ddp_trains_over_a_link_that_is_slow_and_loses_packets(tmp_path):
    net = model()
    expected = train(net, adam(net), whole)
    with network(2, delay=0.02, loss=0.01) as made:
        for losses in run(train_ddp, made, tmp_path):
            assert losses == pytest.approx(expected, rel=1e-5)


def cut_link(rank: int) -> Any:
    tensor = torch.ones(1000, device=DEVICE)
    for _ in range(3):
        dist.all_reduce(tensor)
    torch.accelerator.synchronize()
    if rank == 0:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_switch:
            to_switch.sendto(b"cut", (SWITCH, 9))
    begin = time.monotonic()
    with pytest.raises(torch.AcceleratorError) as error:
        for _ in range(1000):
            dist.all_reduce(tensor)
            torch.accelerator.synchronize()
    return str(error.value), time.monotonic() - begin


def test_a_link_that_is_cut_raises_within_the_timeout(tmp_path):
    with network(2, delay=0.005) as made:
        for rank, (message, elapsed) in enumerate(run(cut_link, made, tmp_path)):
            assert "occl::all_reduce (number " in message and f"rank {rank} of 2) failed: " in message
            assert elapsed < 10 + 5  # the timeout, and what the store is given


def time_collectives(rank: int) -> dict[tuple[str, int], float]:
    """Seconds of each collective, with tensors of so many bytes."""
    size = dist.get_world_size()
    calls = {
        "all_reduce": lambda tensor: dist.all_reduce(tensor),
        "all_gather": lambda tensor: dist.all_gather_into_tensor(torch.cat([tensor] * size), tensor),
        "reduce_scatter": lambda tensor: dist.reduce_scatter_tensor(tensor.chunk(size)[0].clone(), tensor),
        "broadcast": lambda tensor: dist.broadcast(tensor, 0),
        "all_to_all": lambda tensor: dist.all_to_all_single(tensor.clone(), tensor),
    }
    times = {}
    for number in (12, 300_000):
        tensor = torch.ones(number, device=DEVICE)
        for name, call in calls.items():
            call(tensor)  # the ranks connect
            dist.barrier(device_ids=[0])
            begin = time.monotonic()
            for _ in range(3):
                call(tensor)
            dist.barrier(device_ids=[0])
            times[name, tensor.nbytes] = (time.monotonic() - begin) / 3
    return times


def test_collectives_cost_what_the_documentation_says(tmp_path):
    """Its formulas, in round trips and in bytes that a rank gets; a third of the last barrier is counted too."""
    size, delay, rate = 3, 0.02, 5e6
    costs = {
        "all_reduce": (2 * (size - 1), 2 * (size - 1) / size),
        "all_gather": (size - 1, size - 1),
        "reduce_scatter": (2 * (size - 1), 2 * (size - 1) / size),
        "broadcast": (1, 1),
        "all_to_all": (1, (size - 1) / size),
    }
    with network(size, delay=delay, rate=rate) as made:
        for times in run(time_collectives, made, tmp_path):
            for (name, nbytes), seconds in times.items():
                trips, share = costs[name]
                expected = trips * 2 * delay + share * nbytes / rate
                assert 0.7 < seconds / expected < 2, (name, nbytes, seconds, expected)


def sent_early(rank: int) -> list[float]:
    """For each bucket of DDP's gradients, by how many milliseconds it had been reduced before the last gradient was
    computed."""
    torch.set_num_threads(1)
    layers, width = 12, 128
    linears = (nn.Linear(width, width, bias=False) for _ in range(layers))
    net = nn.Sequential(*linears).to(DEVICE)
    size = width * width * 4 / 2**20
    ddp = DistributedDataParallel(net, bucket_cap_mb=size)  # a bucket for each layer
    batch = torch.randn(20000, width, device=DEVICE)
    reduced: list[torch.Event] = []
    computed: list[torch.Event] = []

    def now(events: list[torch.Event]) -> None:
        events.append(torch.accelerator.current_stream().record_event(torch.Event(enable_timing=True)))

    def reduce(_, bucket):  # DDP would compare annotations, which are strings in this file
        def done(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            now(reduced)  # on a stream that comes after the collective
            return future.value()[0]

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(done)

    ddp.register_comm_hook(None, reduce)
    net[0].weight.register_hook(lambda _: now(computed))
    for _ in range(3):  # the first time buckets are in another order
        reduced.clear()
        computed.clear()
        ddp(batch).square().sum().backward()
        torch.accelerator.synchronize()
    return [event.elapsed_time(computed[0]) for event in reduced]


def test_ddp_communicates_during_the_backward_pass(tmp_path):
    with network(2, delay=0.002) as made:
        for early in run(sent_early, made, tmp_path):
            assert len(early) == 12
            assert sum(milliseconds > 0 for milliseconds in early) >= 6, early
