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


ONE_RANK_OF_EIGHT = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (3, 8, "nccl")
assert isinstance(dist.group.WORLD._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
LAYER = 4 * 4096 * 4096


def layers():
    return nn.Sequential(*(nn.Linear(4096, 4096, bias=False, device="cuda") for _ in range(8)))


def train(model, optimizer):
    for _ in range(2):
        model(torch.randn(16, 4096, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [value for state in optimizer.state.values() for value in state.values() if value.numel() > 1]


def held():
    torch.cuda.synchronize()
    return round((torch.cuda.memory_allocated() - before) / LAYER, 2)


before = torch.cuda.memory_allocated()
x = torch.ones(8, device="cuda")
dist.all_reduce(x)
assert x.tolist() == [8] * 8

model = nn.parallel.DistributedDataParallel(layers())
states = train(model, torch.optim.AdamW(model.parameters()))
workspaces = held() - 8 - 8 - 16  # parameters, gradients in buckets, states
assert len(states) == 16 and 0 <= workspaces < 1, workspaces
del model, states

model = layers()
for each in model:
    fully_shard(each)
fully_shard(model)
states = train(model, torch.optim.AdamW(model.parameters()))
assert len(states) == 16 and all(state.to_local().nbytes == LAYER // 8 for state in states)
assert held() - workspaces == 1 + 2, held()
del model, states

model = nn.parallel.DistributedDataParallel(layers())
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
train(model, optimizer)
states = [value for state in optimizer.optim.state.values() for value in state.values() if value.numel() > 1]
assert sum(state.nbytes for state in states) == 2 * LAYER  # those of one layer

# Messages of pipelines and experts.
dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 4), dist.P2POp(dist.irecv, x.clone(), 2)])[0].wait()
dist.all_to_all_single(torch.empty_like(x), x)
dist.destroy_process_group()
"""


def test_a_rank_of_a_fake_world_trains_with_nccl() -> None:
    done = run_python("-c", ONE_RANK_OF_EIGHT, TORCH_OPENREG_COMPUTE="0", TORCH_OPENREG_FAKE_WORLD="8", RANK="3")
    assert done.returncode == 0, done.stderr
