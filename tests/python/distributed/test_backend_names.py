"""Names of backends: Gloo's serves the device too, as on CUDA; those of other devices are refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def sums(group: Any = None) -> list[float]:
    """On the CPU and on the device."""
    tensors = [torch.ones(2), torch.ones(2, device=DEVICE)]
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
    return [tensor[0].item() for tensor in tensors]


def use_gloo(rank: int) -> Any:
    names = [dist.get_backend()]
    results = [sums()]
    for group in (dist.new_group([0, 1]), dist.new_group([0, 1], backend="gloo"), dist.new_group([0, 1], backend=None)):
        names.append(dist.get_backend(group))
        results.append(sums(group))
    for device in (DEVICE, "cpu"):
        mesh = init_device_mesh(device, (2,), mesh_dim_names=("data",))
        results.append(sums(mesh.get_group("data")))
    if names[0] == "gloo":
        dist.monitored_barrier()
    dist.barrier()
    objects = [None, None]
    dist.all_gather_object(objects, rank)
    return names, results, objects, train(rank)


def train(rank: int) -> list[float]:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SyncBatchNorm(4), torch.nn.Linear(4, 1)).to(DEVICE)
    )
    if dist.get_backend() == "gloo" and dist.get_debug_level() != dist.DebugLevel.DETAIL:
        assert model._get_ddp_logging_data()["backend_name"] == "gloo"
    x = torch.arange(16.0).view(4, 4)[2 * rank : 2 * rank + 2].to(DEVICE)
    model(x).square().sum().backward()
    return [each.grad.sum().item() for each in model.parameters()]


@pytest.mark.parametrize(
    ("backend", "debug"),
    [("gloo", "OFF"), ("GLOO", "DETAIL"), *(pytest.param(b, "OFF", marks=pytest.mark.full) for b in (
        "cpu:gloo,openreg:gloo", "cpu:gloo,openreg:occl", None))],
)  # fmt: skip
def test_gloo_serves_the_device(backend, debug, tmp_path):
    names, results, objects, gradients = zip(
        *run_ranks(use_gloo, 2, tmp_path, backend=backend, environment={"TORCH_DISTRIBUTED_DEBUG": debug}), strict=True
    )
    named = "gloo" if backend and backend.lower() == "gloo" else backend
    assert names[0][2] == "gloo" and {names[0][0], names[0][1], names[0][3]} == {named or names[0][0]}
    assert results == ([[2.0, 2.0]] * 6,) * 2
    assert objects == ([0, 1],) * 2
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("backend", ["nccl", "NCCL", "cpu:gloo,openreg:nccl", "mpi", "ucc", "xccl", "openreg:ucc"])
def test_backends_of_other_devices_are_refused_with_the_name_of_ours(backend):
    with pytest.raises(RuntimeError, match=r'openreg: the backend \w+ is not available for .*use "occl"'):
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()


def test_a_group_of_another_device_is_refused_in_a_running_program():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match='use "occl"'):
            dist.new_group([0], backend="nccl")
        assert sums() == [1.0, 1.0]
    finally:
        dist.destroy_process_group()


def test_a_group_by_gloo_has_one_gloo():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        assert dist.get_backend_config() == "cpu:gloo,openreg:occl"
        assert group._get_backend(torch.device("cpu")).name() == "gloo"
        assert group._get_backend(torch.device(DEVICE)).name() == "occl"
        assert group.name() == "gloo"
    finally:
        dist.destroy_process_group()
