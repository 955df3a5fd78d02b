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
from network import INTERFACE, SWITCH, Network, address, enter
from ranks import run_ranks
from test_parallel_training import adam, ddp, model, train

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


def test_ddp_trains_over_a_link_that_is_slow_and_loses_packets(tmp_path):
    net = model()
    expected = train(net, adam(net), lambda batch: batch)
    with network(2, delay=0.02, loss=0.01) as made:
        for losses in run(ddp, made, tmp_path):
            assert losses == pytest.approx(expected, rel=1e-5)


def cut_link(rank: int) -> Any:
    tensor = torch.ones(1000, device="openreg")
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
