"""Networks that Inductor compiled, trained by several ranks: the losses are those of one process that takes all."""

from __future__ import annotations

import pytest
import torch
from ranks import run_on_devices
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
