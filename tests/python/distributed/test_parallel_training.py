"""Training by several ranks that do not all have the whole model or optimizer: the losses are those of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from training import adam, model, rank_part, train, whole


def zero(rank: int) -> list[float]:
    net = DistributedDataParallel(model().to(DEVICE))
    return train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2), rank_part)


def tensor_parallel(rank: int) -> list[float]:
    mesh = dist.init_device_mesh(DEVICE, (dist.get_world_size(),))
    net = parallelize_module(model().to(DEVICE), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    # One by one: the layer that is not split has parameters of another class.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    return train(net, optimizer, lambda batch: batch.to(DEVICE), sharded=False)


WAYS = {zero: 1e-5, tensor_parallel: 1e-5}
IN_RANKS = tuple(WAYS)


@pytest.mark.parametrize("way, tolerance", WAYS.items())
def test_losses_are_those_of_one_process(of, way, tolerance):
    net = model()
    expected = train(net, adam(net), whole)
    assert expected[-1] < expected[0]
    for losses in of(way):
        assert losses == pytest.approx(expected, rel=tolerance)
