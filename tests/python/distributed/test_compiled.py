"""Programs of several ranks that Inductor compiled: networks whose losses are those of one process that takes all, and
collectives that its passes move among kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as functional
from ranks import run_on_devices
from torch._inductor import config as inductor_config
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from training import DEVICE, adam, blocks, model, part_of, train


def ddp_of_a_compiled_network(rank: int | None) -> list[float]:
    net = model()
    if rank is not None:
        net = DistributedDataParallel(torch.compile(net.to(DEVICE)))
    return train(net, adam(net), part_of(rank))


def compiled_ddp(rank: int | None) -> list[float]:
    net = model()
    if rank is not None:
        net = torch.compile(DistributedDataParallel(net.to(DEVICE)))
    return train(net, adam(net), part_of(rank))


def sharded_blocks_that_are_compiled(rank: int | None) -> list[float]:
    net = blocks()
    if rank is not None:
        net.to(DEVICE)
        for block in net:
            block.compile()
            fully_shard(block)
        fully_shard(net)
    return train(net, adam(net), part_of(rank))


WAYS = (ddp_of_a_compiled_network, compiled_ddp, sharded_blocks_that_are_compiled)


def launches(rank: int) -> int:
    """Of compiled kernels, so far."""
    return torch.openreg.launch_stats()["compiled"]


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    return run_on_devices(2, tmp_path_factory.mktemp("ranks"), *WAYS, launches)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_losses_are_those_of_one_process(of, way):
    expected = way(None)
    assert expected[-1] < expected[0]
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=1e-4)
    assert all(count > 0 for count in of(launches))


PASSES = "reorder_for_compute_comm_overlap_passes"
SCHEDULES: dict[str, dict[str, Any]] = {
    "none": {},
    "default": {"reorder_for_compute_comm_overlap": True},
    "for overlap": {
        "reorder_for_compute_comm_overlap": True,
        PASSES: ["sink_waits", "raise_comms", "reorder_compute_for_overlap"],
    },
    "for memory": {
        "reorder_for_compute_comm_overlap": True,
        PASSES: ["reorder_communication_preserving_peak_memory"],
    },
    "of the graph": {"aten_distributed_optimizations.enable_overlap_scheduling": True},
}


def collectives_among_kernels(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    everyone = torch.distributed.group.WORLD
    a = functional.all_reduce(x @ w, "sum", everyone)
    b = (x.sin() @ w).cos()
    c = functional.all_gather_tensor(b, 0, everyone)
    d = (b @ w).tanh()
    e = functional.reduce_scatter_tensor(torch.cat([d, d]), "sum", 0, everyone)
    return a.sin() + c[: len(x)] + c[len(x) :] * 2 + d + e


def scheduled(rank: int) -> dict[str, float]:
    """The greatest error of each schedule, also where the device is behind."""
    x = torch.linspace(-1, 1 + rank, 64).view(8, 8).to(DEVICE)
    w = torch.linspace(-2, 1, 64).view(8, 8).to(DEVICE)
    expected = collectives_among_kernels(x, w)
    errors = {}
    for name, options in SCHEDULES.items():
        torch._dynamo.reset()
        with inductor_config.patch(options):
            compiled = torch.compile(collectives_among_kernels)
            for behind in (False, True):
                if behind:
                    torch.openreg._sleep(20_000_000)
                error = (compiled(x, w) - expected).abs().max().item()
                errors[name] = max(errors.get(name, 0.0), error)
    return errors


@pytest.mark.full
def test_passes_that_move_collectives_keep_their_results(tmp_path):
    for errors in run_on_devices(2, tmp_path, scheduled)(scheduled):
        assert set(errors) == set(SCHEDULES) and max(errors.values()) < 1e-4
