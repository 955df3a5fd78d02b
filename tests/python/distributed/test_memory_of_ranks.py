"""The memory of a rank, of a fake world and of a real one."""

from __future__ import annotations

import gc
from typing import Any

import fsdp_constants
import parallel_programs
import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_ranks

pytestmark = pytest.mark.any_device

RANKS = 2
COMPUTING, NOT_COMPUTING = {"TORCH_OPENREG_COMPUTE": "1"}, {"TORCH_OPENREG_COMPUTE": "0"}
no_executor = pytest.mark.no_executor("nothing computes")


def measure(rank: int, alike: bool = False) -> dict[str, dict[str, int]]:
    """`alike`: by the rules of CUDA's allocator, and without what only CUDA's kernels allocate."""
    torch.set_num_threads(1)  # as torchrun does
    if alike:
        fsdp_constants.library().use_cuda_segments(True)
        fsdp_constants.library().reproduce_cuda_allocations(False)
    figures = {name: parallel_programs.memory_of(program) for name, program in parallel_programs.PROGRAMS.items()}
    # It records streams: when memory is free again depends, as on a GPU, on how far the device is behind the host, and
    # so does which block is reused, and how much larger than requested it is.
    figures["fsdp1"] = {
        name: figures["fsdp1"][name] for name in ("requested_bytes.all.peak", "allocation.all.allocated")
    }
    return figures


def constants(rank: int, checkpointed: bool) -> dict[str, float]:
    return fsdp_constants.memory_of_training(checkpointed)


def in_fake_world(_: int, function: Any, size: int, rank: int, *args: Any) -> Any:
    with torch.get_device_module(DEVICE).fake_world(size, rank):
        dist.init_process_group()
        return function(rank, *args)


def fake_rank(folder: Any, environment: dict[str, str], function: Any, size: int, rank: int, *args: Any) -> Any:
    (result,) = run_ranks(in_fake_world, 1, folder, function, size, rank, *args, backend="", environment=environment)
    return result


@no_executor
def test_a_rank_of_a_fake_world_takes_the_same_memory_without_computing(tmp_path):
    figures = [fake_rank(tmp_path, mode, measure, RANKS, 1, True) for mode in (COMPUTING, NOT_COMPUTING)]
    assert figures[0] == figures[1]


@no_executor
@pytest.mark.parametrize("checkpointed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_fully_sharded_training_has_the_memory_that_pytorch_expects(checkpointed, tmp_path):
    figures = fake_rank(tmp_path, NOT_COMPUTING, constants, fsdp_constants.RANKS, 1, checkpointed)
    assert figures == pytest.approx(fsdp_constants.expected(checkpointed), abs=fsdp_constants.TOLERANCE)


# Each in processes of its own: a parameter of FSDP and the node that accumulates its gradient keep each other.
@pytest.mark.full
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("mode", [COMPUTING, pytest.param(NOT_COMPUTING, marks=no_executor)])
def test_real_ranks_have_the_memory_that_pytorch_expects(mode, checkpointed, tmp_path):
    expected = pytest.approx(fsdp_constants.expected(checkpointed), abs=fsdp_constants.TOLERANCE)
    for figures in run_ranks(constants, fsdp_constants.RANKS, tmp_path, checkpointed, environment=mode, timeout=300):
        assert figures == expected


SIZE = 1 << 20


def reduce_alone(rank: int, end: str) -> None:
    """Rank 1 joins when rank 0 has waited, and freed the tensor; or never, because rank 0 aborts the group."""
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(4, device=DEVICE))  # connects
    x, kept = (torch.ones(SIZE, device=DEVICE) for _ in range(2))
    torch.accelerator.synchronize()  # so that the collective begins at the call
    if rank == 1:
        store.wait(["freed"])
        if end == "joins":
            dist.group.WORLD.allreduce_coalesced([x, kept]).wait()
        store.wait(["checked"])
        return
    addresses = {x.data_ptr(), kept.data_ptr()}
    before = torch.accelerator.memory_allocated()
    dist.group.WORLD.allreduce_coalesced([x, kept]).wait()
    del x
    assert before - torch.accelerator.memory_allocated() == 4 * SIZE
    others = [torch.zeros(SIZE, device=DEVICE) for _ in range(4)]
    assert addresses.isdisjoint(other.data_ptr() for other in others)
    if end == "joins":
        store.set("freed", "")
        torch.accelerator.synchronize()
        assert kept[0].item() == 2
        assert torch.zeros(SIZE, device=DEVICE).data_ptr() in addresses
    else:
        dist.distributed_c10d._get_default_group().abort()
        with pytest.raises(torch.AcceleratorError, match="aborted"):
            torch.accelerator.synchronize()
        del kept
        others += [torch.zeros(SIZE, device=DEVICE) for _ in range(4)]
        assert addresses.isdisjoint(other.data_ptr() for other in others)  # Gloo still uses them
        store.set("freed", "")
    store.set("checked", "")


@pytest.mark.parametrize("end", ["joins", "abort"])
def test_memory_is_free_when_a_stream_waits_and_reused_when_gloo_has_finished(end, tmp_path):
    run_ranks(reduce_alone, RANKS, tmp_path, end, backend="occl", environment=COMPUTING)


def gathered_at_once(rank: int, limits: list[bool]) -> list[int]:
    """The peak of reserved memory of a training with FSDP1, by `limit_all_gathers`."""
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel

    figures = []
    for limit in limits:
        layers = [nn.Linear(LAYER, LAYER, bias=False, device=DEVICE) for _ in range(LAYERS)]
        wrapped = [FullyShardedDataParallel(layer, limit_all_gathers=limit) for layer in layers]
        model = FullyShardedDataParallel(nn.Sequential(*wrapped), limit_all_gathers=limit)
        for _ in range(2):
            model(torch.randn(1, LAYER, device=DEVICE)).sum().backward()
        torch.accelerator.synchronize()
        figures.append(torch.accelerator.max_memory_reserved())
        del layers, wrapped, model
        gc.collect()
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
    return figures


LAYER, LAYERS = 2048, 12


@no_executor
def test_without_a_limit_on_all_gathers_the_schedule_decides_about_memory(tmp_path):
    best, worst = (
        fake_rank(tmp_path, NOT_COMPUTING | how, gathered_at_once, 8, 0, [True, False])
        for how in ({"TORCH_OPENREG_LAUNCH_BLOCKING": "1"}, {"TORCH_OPENREG_SCHEDULE": "latest"})
    )
    gathered = 4 * LAYER**2
    assert max(*best, worst[0]) < min(best) + 6 * gathered
    assert worst[1] > best[1] + LAYERS * gathered


def large_model_of(rank: int) -> dict[str, Any]:
    import large_model

    return large_model.train()


@pytest.mark.full
def test_seventy_billion_parameters_on_a_thousand_ranks_take_a_step(tmp_path):
    environment = NOT_COMPUTING | {"TORCH_OPENREG_MEMORY": "80GiB"}
    found = fake_rank(tmp_path, environment, large_model_of, 1024, 700)
    assert found["parameters"] == pytest.approx(70.6e9, rel=0.01)
    states = 3 * 4 * found["parameters"] / 1024 / 2**30  # float32: parameters and AdamW's
    scores = 4096 * 128256 * 4 / 2**30
    assert states + 2 * scores < found["allocated"] < 40
    assert found["resident"] < 3


def races_of_a_large_model(rank: int) -> str:
    import large_model

    # Eight billion parameters.
    large_model.WIDTH, large_model.HIDDEN, large_model.LAYERS, large_model.HEADS = 4096, 14336, 32, 32
    assert large_model.train()["parameters"] > 8e9
    x = torch.ones(1 << 28, device=DEVICE)
    try:
        with torch.Stream(DEVICE):
            x.add_(1)
    except torch.get_device_module(DEVICE).UnsynchronizedAccessError as error:
        return str(error)
    return ""


@pytest.mark.full
def test_races_are_detected_in_a_model_that_the_machine_cannot_hold(tmp_path):
    environment = NOT_COMPUTING | {"TORCH_OPENREG_MEMORY": "80GiB", "TORCH_OPENREG_DETECT_RACES": "1"}
    assert "aten::add_" in fake_rank(tmp_path, environment, races_of_a_large_model, 8, 0)
