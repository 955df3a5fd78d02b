"""torch.distributed.ProcessGroupNCCL: programs ask whether a group is one, and call what only NCCL has."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from child_processes import run_python

CUDA = torch.device("cuda")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[dist.ProcessGroupNCCL]:
    dist.init_process_group("nccl", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD._get_backend(CUDA)
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_group_is_one_of_nccl(backend) -> None:
    assert isinstance(backend, dist.ProcessGroupNCCL)
    assert isinstance(backend, dist.distributed_c10d.ProcessGroupNCCL)
    assert not isinstance(object(), dist.ProcessGroupNCCL)
    assert issubclass(type(backend), dist.ProcessGroupNCCL)
    assert dist.get_backend() == backend.name() == "nccl" and dist.is_nccl_available()


def test_what_only_nccl_has_can_be_called(backend) -> None:
    assert backend._is_initialized() and backend.comm_split_count() == 0
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    assert backend.uid == dist.distributed_c10d._get_process_group_uid(dist.group.WORLD) >= 0
    backend.eager_connect_single_device(torch.device("cuda:0"))
    backend.perform_nocolor_split(torch.device("cuda:0"))
    pool = torch.cuda.MemPool()
    backend.register_mem_pool(pool)
    backend.deregister_mem_pool(pool)
    with pytest.raises(TypeError, match="the pool has the wrong type"):
        backend.register_mem_pool(3)
    assert dist.ProcessGroupNCCL.get_runtime_nccl_version() == torch.cuda.nccl.version()
    assert dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO == 2


@pytest.mark.parametrize("name", ["_start_time_estimate", "_end_time_estimate", "_comm_ptr"])
def test_what_needs_nccl_raises_a_sentence(backend, name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"openreg: ProcessGroupNCCL.{name} needs NCCL: .{{20}}"):
        getattr(backend, name)()


def test_timeouts_are_set_and_extended(backend) -> None:
    minute = datetime.timedelta(minutes=1)
    dist.distributed_c10d._set_pg_timeout(minute)
    assert backend.options._timeout == minute
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(minute)
    # Since 2.14 PyTorch asks the class in C++, which does not extend it (docs/cuda.md).
    assert backend.options._timeout == (2 if torch.__version__ < (2, 14) else 1) * minute


def test_options_are_accepted(tmp_path: Path) -> None:
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 2
    copied = copy.deepcopy(options)
    assert copied.is_high_priority_stream and copied.config.min_ctas == 2 and copied._timeout == options._timeout
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, pg_options=options)
    try:
        group = dist.new_group([0], pg_options=options)
        x = torch.ones(2, device="cuda")
        dist.all_reduce(x, group=group)
        assert x.tolist() == [1, 1]
    finally:
        dist.destroy_process_group()


def test_a_group_is_constructed(tmp_path: Path) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    group = dist.ProcessGroupNCCL(store, 0, 1, dist.ProcessGroupNCCL.Options())
    assert isinstance(group, dist.ProcessGroupNCCL)
    x = torch.full((2,), 3.0, device="cuda")
    group.allreduce([x]).wait()
    assert x.tolist() == [3, 3]


def test_a_group_is_aborted(backend) -> None:
    dist.distributed_c10d._abort_process_group()
    assert not dist.is_initialized()
    with pytest.raises(RuntimeError, match="aborted"):
        backend.allreduce([torch.ones(2, device="cuda")]).wait()
        torch.cuda.synchronize()


DETAIL = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
objects = [None, None]
dist.all_gather_object(objects, {"rank": dist.get_rank()})
assert objects == [{"rank": 0}, {"rank": 1}]
pair = dist.split_group(split_ranks=[[0, 1]], pg_options=dist.ProcessGroupNCCL.Options()) if SPLIT else dist.new_group()
x = torch.ones(1, device="cuda")
dist.all_reduce(x, group=pair)
assert x.item() == 2
dist.barrier(device_ids=[dist.get_rank()])
dist.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize("split", [False, True], ids=["new_group", "split_group"])
def test_ranks_communicate_in_detail(tmp_path: Path, split: bool) -> None:
    program = tmp_path / "program.py"
    bound = 'device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"]))' if split else ""
    program.write_text(DETAIL.replace('("nccl")', f'("nccl", {bound})').replace("SPLIT", str(split)))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    detail = {} if split else {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    result = run_python(*launcher, program, **detail)
    assert result.stdout.count("done") == 2, result.stderr
