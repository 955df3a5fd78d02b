"""The memory of a rank of a fake world: computing or not, the figures are equal to the byte."""

from __future__ import annotations

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


def measure(rank: int, alike: bool = False) -> dict[str, dict[str, int]]:
    """`alike`: by the rules of CUDA's allocator, and without what only CUDA's kernels allocate."""
    torch.set_num_threads(1)  # as torchrun does
    if alike:
        fsdp_constants.library().use_cuda_segments(True)
        fsdp_constants.library().reproduce_cuda_allocations(False)
    figures = {name: parallel_programs.memory_of(program) for name, program in parallel_programs.PROGRAMS.items()}
    # It records streams: when memory is free again depends, as on a GPU, on how far the device is behind the host.
    figures["fsdp1"] = {
        name: figures["fsdp1"][name] for name in ("allocated_bytes.all.peak", "allocation.all.allocated")
    }
    return figures


def constants(rank: int, *modes: bool) -> list[dict[str, float]]:
    return [fsdp_constants.memory_of_training(checkpointed) for checkpointed in modes]


def in_fake_world(_: int, function: Any, size: int, rank: int, *args: Any) -> Any:
    with torch.get_device_module(DEVICE).fake_world(size, rank):
        dist.init_process_group()
        return function(rank, *args)


def fake_rank(folder: Any, environment: dict[str, str], function: Any, size: int, rank: int, *args: Any) -> Any:
    (result,) = run_ranks(in_fake_world, 1, folder, function, size, rank, *args, backend="", environment=environment)
    return result


def test_a_rank_of_a_fake_world_takes_the_same_memory_without_computing(tmp_path):
    figures = [fake_rank(tmp_path, mode, measure, RANKS, 1, True) for mode in (COMPUTING, NOT_COMPUTING)]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("checkpointed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_fully_sharded_training_has_the_memory_that_pytorch_expects(checkpointed, tmp_path):
    (figures,) = fake_rank(tmp_path, NOT_COMPUTING, constants, fsdp_constants.RANKS, 1, checkpointed)
    assert figures == pytest.approx(fsdp_constants.expected(checkpointed), abs=fsdp_constants.TOLERANCE)


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
