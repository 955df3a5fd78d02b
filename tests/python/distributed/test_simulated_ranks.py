"""Many ranks in one process: as threads, over occl and by PyTorch's threaded group, and by its fake group."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from children import child_environment
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

EXAMPLE = Path(__file__).parents[3] / "examples" / "many_ranks.py"


@pytest.mark.parametrize("parts", [2, pytest.param(4, marks=pytest.mark.full)])
def test_a_step_split_three_ways_by_threads_is_that_of_one_process(parts, tmp_path):
    ranks = parts**3
    result = subprocess.run(
        [sys.executable, EXAMPLE, *(f"--{name}={parts}" for name in ("layers", "data", "matrices"))],
        env=child_environment([], {"TORCH_OPENREG_DEVICES": str(ranks)}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["ranks"] == ranks
    assert report["loss"] == pytest.approx(report["loss of one process"], rel=1e-6)
    assert report["largest difference of a gradient"] < 1e-6
    assert report["seconds"] < 60


def by_threads(_: int) -> dict[str, str]:
    """What goes wrong in tests of PyTorch's kind, of which each runs on four threads at once; nothing is empty."""
    import unittest

    from torch.testing._internal.common_distributed import MultiThreadedTestCase

    net = nn.Linear(8, 8)

    class Threads(MultiThreadedTestCase):
        world_size = 4

        def setUp(self) -> None:
            super().setUp()
            self._spawn_threads()

        def test_collectives(self) -> None:
            total = torch.full((4,), self.rank + 1.0, device=DEVICE)
            dist.all_reduce(total)
            self.assertEqual(total.tolist(), [10.0] * 4)
            gathered = torch.empty(4, device=DEVICE)
            dist.all_gather_single(gathered, torch.tensor([float(self.rank)], device=DEVICE))
            self.assertEqual(gathered.tolist(), [0, 1, 2, 3])
            share = torch.empty(1, device=DEVICE)
            dist.reduce_scatter_single(share, torch.arange(4.0, device=DEVICE))
            self.assertEqual(share.item(), 4 * self.rank)

        def test_each_rank_on_a_stream_of_its_own(self) -> None:
            with torch.openreg.stream(torch.Stream()):
                busy = torch.ones(400, 400, device=DEVICE)
                for _ in range(20):
                    busy = busy @ busy / 400
                total = busy[0, :4] * (self.rank + 1)
                dist.all_reduce(total)
                self.assertEqual(total.tolist(), [10.0] * 4)

        def test_dtensors(self) -> None:
            mesh = dist.init_device_mesh(DEVICE, (4,))
            whole = torch.arange(64.0).view(8, 8)
            a = distribute_tensor(whole.to(DEVICE), mesh, [Shard(1)]).requires_grad_()
            product = a @ distribute_tensor(whole.to(DEVICE), mesh, [Shard(0)])
            product.redistribute(placements=[Shard(0)]).sum().backward()
            self.assertEqual(product.full_tensor().cpu(), whole @ whole)
            self.assertEqual(a.grad.full_tensor().cpu(), whole.sum(1).expand(8, 8))

        def test_fully_sharded(self) -> None:
            whole, sharded, x = copy.deepcopy(net), copy.deepcopy(net).to(DEVICE), torch.ones(4, 8)
            fully_shard(sharded, mesh=dist.init_device_mesh(DEVICE, (4,)))
            for each, input in ((whole, x), (sharded, x.to(DEVICE))):
                each(input).square().mean().backward()
            self.assertEqual(sharded.weight.grad.full_tensor().cpu(), whole.weight.grad)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Threads).run(result)
    return {"run": result.testsRun, **{str(test): text for test, text in result.errors + result.failures}}


def one_of_sixteen(_: int) -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=16)
    mesh = dist.init_device_mesh(DEVICE, (8, 2), mesh_dim_names=("data", "tensor"))
    net = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32)).to(DEVICE)
    parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(net, mesh=mesh["data"])
    net(torch.randn(4, 32, device=DEVICE)).sum().backward()
    gradient = net[0].weight.grad
    assert isinstance(gradient, DTensor)
    for device in (DEVICE, "cpu"):
        dist.all_reduce(torch.ones(2, device=device))
    return mesh.get_coordinate(), gradient.device.type, tuple(gradient.shape), tuple(gradient.to_local().shape)


@pytest.fixture(scope="module", params=["1", pytest.param("4", marks=pytest.mark.full)])
def results_with_devices(request, tmp_path_factory):
    folder, environment = tmp_path_factory.mktemp("ranks"), {"TORCH_OPENREG_DEVICES": request.param}
    (results,) = run_ranks(run_in_turn, 1, folder, by_threads, one_of_sixteen, backend="", environment=environment)
    return results


def test_the_threaded_group_of_pytorch_computes_on_the_device(results_with_devices):
    assert results_with_devices["by_threads"] == {"run": 4}


def test_one_process_plays_any_rank_of_a_fake_group(results_with_devices):
    assert results_with_devices["one_of_sixteen"] == ((2, 1), DEVICE, (64, 32), (4, 32))
