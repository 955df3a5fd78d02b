"""One process plays a rank of many. Its collectives have the results of ranks that all hold the same values."""

from __future__ import annotations

import os
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
from torch.distributed import _functional_collectives as functional

pytestmark = pytest.mark.any_device

OPS = dist.ReduceOp
REDUCTIONS = (OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX)
BITWISE = (OPS.BAND, OPS.BOR, OPS.BXOR)


def device_module() -> Any:
    return torch.get_device_module(DEVICE)


def values(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(1, count + 1) % 7 + 1).to(dtype).view(shape).to(device)


# What the ranks do. Each passes the same values, whatever its rank.


def reductions(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in REDUCTIONS:
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            found[f"all_reduce {op} {dtype}"] = x = values(device, 5, dtype=dtype)
            dist.all_reduce(x, op)
    for op in BITWISE:
        found[f"all_reduce {op}"] = x = values(device, 5, dtype=torch.int32)
        dist.all_reduce(x, op)
    found["all_reduce bool"] = x = torch.tensor([True, False], device=device)
    dist.all_reduce(x)
    found["reduce"] = x = values(device, 3, 2)
    dist.reduce(x, dst=0)
    if dist.get_rank() != 0:
        del found["reduce"]
    size = dist.get_world_size()
    found["reduce_scatter_single"] = x = torch.empty(3, device=device)
    dist.reduce_scatter_single(x, values(device, 3 * size))
    found["reduce_scatter"] = x = torch.empty(2, 2, device=device)
    dist.reduce_scatter(x, list(values(device, size, 2, 2)))
    return found


def reductions_of_the_device(device: str) -> dict[str, Any]:
    """Which Gloo lacks for CPU tensors."""
    found: dict[str, Any] = {}
    for dtype in (torch.float32, torch.int16):
        found[f"average of {dtype}"] = x = values(device, 5, dtype=dtype)
        dist.all_reduce(x, OPS.AVG)
    found["transposed"] = x = values(device, 4, 3).t()
    dist.all_reduce(x)
    found["short"] = x = values(device, 4, dtype=torch.int16)
    dist.all_reduce(x)
    found["complex"] = x = torch.complex(values(device, 3), -values(device, 3))
    dist.all_reduce(x)
    size, rank = dist.get_world_size(), dist.get_rank()
    for scale in (0.5, torch.tensor(0.25, device=device)):
        found[f"multiplied by {scale}"] = x = torch.empty(3, device=device)
        dist.reduce_scatter_single(x, values(device, 3 * size), dist._make_nccl_premul_sum(scale))
    found["uneven reduce_scatter"] = x = torch.empty(rank + 1, device=device)
    dist.reduce_scatter(x, [values(device, each + 1) for each in range(size)])
    found["sparse"] = values(device, 4, 2).to_sparse()
    dist.all_reduce(found["sparse"])
    return found


def copies(device: str) -> dict[str, Any]:
    size, rank = dist.get_world_size(), dist.get_rank()
    found: dict[str, Any] = {}
    found["broadcast"] = x = values(device, 4)
    dist.broadcast(x, src=size - 1)
    found["all_gather"] = outputs = [torch.empty(2, 3, device=device) for _ in range(size)]
    dist.all_gather(outputs, values(device, 2, 3))
    found["all_gather_single"] = x = torch.empty(size * 4, device=device)
    dist.all_gather_single(x, values(device, 4))
    gathered = [torch.empty(2, device=device) for _ in range(size)]
    dist.gather(values(device, 2), gathered if rank == 0 else None, dst=0)
    scattered = torch.empty(2, device=device)
    dist.scatter(scattered, list(values(device, size, 2)) if rank == 0 else None, src=0)
    if rank == 0:
        found |= {"gather": gathered, "scatter": scattered}
    found["all_to_all_single"] = x = torch.empty(2 * size, 2, device=device)
    dist.all_to_all_single(x, values(device, 2 * size, 2))
    to = [each + 1 for each in range(size)]
    found["uneven all_to_all_single"] = x = torch.empty(size * to[rank], 2, device=device)
    dist.all_to_all_single(x, values(device, sum(to), 2), [to[rank]] * size, to)
    dist.barrier()
    return found


def copies_of_the_device(device: str) -> dict[str, Any]:
    size, rank = dist.get_world_size(), dist.get_rank()
    found: dict[str, Any] = {}
    found["all_to_all"] = outputs = [torch.empty(rank + 1, device=device) for _ in range(size)]
    dist.all_to_all(outputs, [values(device, each + 1) for each in range(size)])
    found["transposed"] = x = torch.empty(3, 2 * size, device=device).t()
    dist.all_gather_single(x, values(device, 3, 2).t())
    with dist._coalescing_manager(device=torch.device(DEVICE, 0)):
        for name in "first", "second":
            found[name] = torch.empty(size * 2, device=device)
            dist.all_gather_single(found[name], values(device, 2))
    return found


def functions(device: str) -> dict[str, Any]:
    x = values(device, 4)
    whole = dist.group.WORLD
    return {
        "all_reduce": functional.all_reduce(x, "avg" if device == DEVICE else "sum", whole) + 0,
        "all_gather": functional.all_gather_tensor(x, 0, whole) + 0,
        "reduce_scatter": functional.reduce_scatter_tensor(values(device, 4 * whole.size()), "sum", 0, whole) + 0,
    }


def objects(device: str) -> dict[str, Any]:
    size, rank = dist.get_world_size(), dist.get_rank()
    found: dict[str, Any] = {"all": [None] * size, "broadcast": [{"a": 1}, "b"]}
    dist.all_gather_object(found["all"], {"values": [1, 2]})
    dist.broadcast_object_list(found["broadcast"], src=size - 1)
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(("x", 3), gathered, dst=0)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [7, 7, 7, 7][:size], src=0)
    return found | {"gathered": gathered, "scattered": scattered}


KINDS = (
    ("cpu", reductions),
    (DEVICE, reductions),
    (DEVICE, reductions_of_the_device),
    ("cpu", copies),
    (DEVICE, copies),
    (DEVICE, copies_of_the_device),
    ("cpu", functions),
    (DEVICE, functions),
    (DEVICE, objects),
)


def plain(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        found = found.to_dense() if found.layout == torch.sparse_coo else found
        return found.cpu().tolist()
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    return [plain(each) for each in found] if isinstance(found, (list, tuple)) else found


def all_kinds(rank: int) -> dict[str, Any]:
    return {f"{function.__name__} on {device}": plain(function(device)) for device, function in KINDS}


def in_fake_worlds(_: int, *sizes: int) -> dict[tuple[int, int], Any]:
    found = {}
    for size in sizes:
        for rank in range(size):
            with device_module().fake_world(size, rank):
                dist.init_process_group()
                found[size, rank] = all_kinds(rank)
    return found


MODES = [
    pytest.param("1", id="computing"),
    pytest.param("0", id="without computing", marks=pytest.mark.no_executor("nothing computes")),
]
SIZES = (2, 3)


@pytest.fixture(scope="module", params=MODES)
def environment(request) -> dict[str, str]:
    return {"TORCH_OPENREG_COMPUTE": request.param}


@pytest.fixture(scope="module")
def fake(environment, tmp_path_factory) -> dict[tuple[int, int], Any]:
    (found,) = run_ranks(
        in_fake_worlds, 1, tmp_path_factory.mktemp("fake"), *SIZES, backend="", environment=environment
    )
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.full)])
def real(request, environment, tmp_path_factory) -> list[Any]:
    return run_ranks(all_kinds, request.param, tmp_path_factory.mktemp("real"), environment=environment)


def test_small_collectives_have_the_results_of_real_ranks_that_hold_the_same_values(real, fake):
    for rank, expected in enumerate(real):
        assert fake[len(real), rank] == expected


def in_child(script: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
    script = f"DEVICE = {DEVICE!r}\nimport os, torch, torch.distributed as dist\n" + script
    return subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment([], variables),
        capture_output=True,
        text=True,
        timeout=300,
    )


def output_of(script: str, **variables: str | None) -> list[str]:
    result = in_child(script, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


PROGRAM_OF_A_LAUNCHER = """
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.get_device_module(DEVICE).set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(init_method="env://")
x = torch.ones(2, device=DEVICE)
dist.all_reduce(x)
print(rank, size, os.environ["LOCAL_WORLD_SIZE"], dist.get_rank(), dist.get_world_size(), x.device.index, x.tolist())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("rank", [None, "5"])
def test_the_variable_lets_a_program_for_torchrun_play_a_rank(rank):
    variables = {"TORCH_OPENREG_FAKE_WORLD": "8", "RANK": rank, "TORCH_OPENREG_DEVICES": "4"}
    expected = int(rank or 0)
    assert output_of(PROGRAM_OF_A_LAUNCHER, **variables) == [
        f"{expected} 8 4 {expected} 8 {expected % 4} [8.0, 8.0]",
    ]


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"TORCH_OPENREG_FAKE_WORLD": "many"}, "TORCH_OPENREG_FAKE_WORLD is malformed"),
        ({"TORCH_OPENREG_FAKE_WORLD": "0"}, "a fake world has 1 to 65536 ranks (got 0)"),
        ({"TORCH_OPENREG_FAKE_WORLD": "4", "RANK": "4"}, "the rank is not in the fake world (got 4, expected 0 to 3)"),
        ({"TORCH_OPENREG_FAKE_WORLD": "4", "WORLD_SIZE": "2"}, "is 4, but WORLD_SIZE is 2"),
    ],
)
def test_a_malformed_variable_is_an_error_of_the_first_group(variables, message):
    result = in_child("dist.init_process_group('gloo')", **variables)
    assert result.returncode == 1
    assert message in result.stderr.splitlines()[-1]


def in_a_thousand_ranks(_: int) -> dict[str, Any]:
    import time

    found: dict[str, Any] = {}
    with device_module().fake_world(1024, 700):
        begin = time.perf_counter()
        dist.init_process_group()
        mesh = dist.init_device_mesh(DEVICE, (8, 8, 16), mesh_dim_names=("data", "layers", "matrices"))
        found["coordinate"] = mesh.get_coordinate()
        found["ranks"] = {name: dist.get_process_group_ranks(mesh[name].get_group()) for name in mesh.mesh_dim_names}
        flat = mesh["data", "matrices"]._flatten("both")
        x = torch.ones(2, device=DEVICE)
        dist.all_reduce(x, group=flat.get_group())
        found["sum"] = x.tolist()
        found["seconds"] = time.perf_counter() - begin
        found["threads"] = len(list(Path("/proc/self/task").iterdir()))
    return found


def groups(_: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with device_module().fake_world(8, 3):
        dist.init_process_group(device_id=torch.device(DEVICE, 0))
        found["outside"] = dist.new_group([0, 1]) is dist.GroupMember.NON_GROUP_MEMBER
        inside = dist.new_group([2, 3, 4], group_desc="some")
        found["rank inside"] = dist.get_rank(inside), dist.get_world_size(inside)
        part = dist.split_group(split_ranks=[[0, 1, 2, 3], [4, 5, 6, 7]])
        found["rank in part"] = dist.get_rank(part), dist.get_world_size(part)
        own, _ = dist.new_subgroups(2)
        gloo = dist.new_group(backend="gloo")
        for name, group in {"inside": inside, "part": part, "own": own, "gloo": gloo}.items():
            x = torch.ones(1, device=DEVICE)
            dist.all_reduce(x, group=group)
            found[f"sum of {name}"] = x.item()
        x = torch.ones(1)
        dist.all_reduce(x, group=gloo)
        found["sum of CPU tensors"] = x.item()
        dist.monitored_barrier(gloo)
        found["names"] = (
            dist.get_backend(gloo),
            isinstance(gloo._get_backend(torch.device("cpu")), dist.ProcessGroupGloo),
        )
        found["asynchronous"] = asynchronous()
    return found


def asynchronous() -> Any:
    x = torch.ones(3, device=DEVICE)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    (future,) = work.get_future().wait()
    received = torch.ones(3, device=DEVICE)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 2), dist.P2POp(dist.irecv, received, 4)])
    for each in works:
        each.wait()
    itself = torch.empty(3, device=DEVICE)
    dist.isend(x, 3)
    dist.recv(itself, 3)
    return x.tolist(), future.tolist(), received.tolist(), itself.tolist(), work.is_completed()


def errors(_: int) -> dict[str, str]:
    found = {}

    def said(name: str, function: Any) -> None:
        with pytest.raises((RuntimeError, ValueError)) as error:
            function()
        found[name] = str(error.value)

    def enter(size: int, rank: int = 0) -> None:
        with device_module().fake_world(size, rank):
            pass

    said("size", lambda: enter(0))
    said("rank", lambda: enter(4, 4))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    said("late", lambda: enter(2))
    dist.destroy_process_group()
    with device_module().fake_world(4, 1):
        dist.init_process_group()
        said("nested", lambda: enter(2))
        said("receive", lambda: dist.recv_object_list([None], src=0))
        said("store", lambda: dist.distributed_c10d._get_default_store().get("address of rank 0"))
    found["after"] = str({name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")})
    found["groups after"] = str(dist.is_initialized())
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    functions_in_turn = (in_a_thousand_ranks, groups, errors)
    (results,) = run_ranks(run_in_turn, 1, tmp_path_factory.mktemp("one"), *functions_in_turn, backend="")
    return results


def test_a_mesh_of_a_thousand_ranks_is_light(found):
    results = found["in_a_thousand_ranks"]
    assert results["coordinate"] == (5, 3, 12)
    assert results["ranks"] == {
        "data": [128 * i + 60 for i in range(8)],
        "layers": [640 + 16 * i + 12 for i in range(8)],
        "matrices": [688 + i for i in range(16)],
    }
    assert results["sum"] == [128.0] * 2
    assert results["seconds"] < 30
    assert results["threads"] < 50


def test_every_kind_of_group_has_the_rank_and_the_sums_of_its_size(found):
    results = found["groups"]
    assert results["outside"]
    assert (results["rank inside"], results["rank in part"]) == ((1, 3), (3, 4))
    for name, size in {"inside": 3, "part": 4, "own": 2, "gloo": 8, "CPU tensors": 8}.items():
        assert results[f"sum of {name}"] == size
    assert results["names"] == ("gloo", True)


def test_works_and_messages_end_and_what_another_rank_sends_is_zeros(found):
    total = [8.0] * 3
    assert found["groups"]["asynchronous"] == (total, total, [0.0] * 3, total, True)


def test_wrong_use_is_an_error_in_one_sentence(found):
    assert found["errors"] == {
        "size": "openreg: a fake world has 1 to 65536 ranks (got 0)",
        "rank": "openreg: the rank is not in the fake world (got 4, expected 0 to 3)",
        "late": "openreg: a fake world must begin before init_process_group() is called",
        "nested": "openreg: a fake world is active already: a process is in one at a time",
        "receive": "openreg: rank 1 cannot receive an object, because only this rank of the fake world exists",
        "store": found["errors"]["store"],
        "after": "{'RANK': None, 'WORLD_SIZE': None}",
        "groups after": "False",
    }
    assert 'address of rank 0" of the store: only this process exists' in found["errors"]["store"]


@pytest.mark.parametrize("variable", ["TORCH_DISTRIBUTED_DEBUG=DETAIL", "TORCH_DIST_INIT_BARRIER=1"])
def test_options_that_let_ranks_meet_work_too(variable):
    name, _, value = variable.partition("=")
    assert output_of(
        "dist.init_process_group()\nx = torch.ones(1, device=DEVICE)\ndist.all_reduce(x)\nprint(x.item())",
        TORCH_OPENREG_FAKE_WORLD="4",
        **{name: value},
    ) == ["4.0"]
