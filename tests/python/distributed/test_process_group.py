"""The process group beside its results: which backend serves what, order, waits, errors, life and death."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """What a function returns in each of two ranks, by a default process group that many functions have shared."""
    functions = (
        default_backends,
        default_types,
        arrive_late,
        collectives_after_work,
        callbacks,
        arithmetic,
        sparse,
        together,
        refused,
        many_groups,
    )
    results = run_ranks(run_in_turn, 2, tmp_path_factory.mktemp("ranks"), *functions)
    return lambda function: [result[function.__name__] for result in results]


def default_backends(rank: int) -> Any:
    cpu, device = torch.ones(2), torch.ones(2, device=DEVICE)
    dist.all_reduce(cpu)
    dist.all_reduce(device)
    return cpu.tolist(), device.tolist(), str(dist.get_backend_config())


def test_without_a_backend_the_device_has_occl_and_the_cpu_gloo(of):
    assert of(default_backends) == [([2, 2], [2, 2], "cpu:gloo,openreg:occl")] * 2


@pytest.mark.parametrize("backend", ["occl", "openreg:occl", "cpu:gloo,openreg:occl"])
def test_backends_by_name(backend, tmp_path, capfd):
    assert run_ranks(device_sum, 2, tmp_path, backend=backend) == [3, 3]
    assert "No backend of type" not in capfd.readouterr().err


def default_types(rank: int) -> list[str]:
    return [dist.new_group(backend=name).name() for name in (None, "cpu:gloo,openreg:occl", "openreg:occl,cpu:gloo")]


def test_a_group_for_both_devices_has_a_default_backend_however_it_was_named(of):
    assert of(default_types) == [["custom"] * 3] * 2


def device_sum(rank: int) -> float:
    tensor = torch.full((3,), rank + 1.0, device=DEVICE)
    dist.all_reduce(tensor)
    return tensor[0].item()


@pytest.mark.any_device
def test_a_program_on_cpu_tensors_has_no_more_threads_than_without_the_device(tmp_path):
    program = (
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group(init_method=f'file://{sys.argv[1]}', rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(2))\n"  # and no barrier, which is the accelerator's since torch 2.14
        "print(len(__import__('os').listdir('/proc/self/task')))\n"
        "dist.destroy_process_group()\n"
    )
    counts = []
    for autoload in "01":
        result = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / autoload)],
            env={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "OMP_NUM_THREADS": "1", "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        counts.append(result.stdout)
    assert counts[0] == counts[1]


def arrive_late(rank: int) -> Any:
    warm = torch.zeros(1, device=DEVICE)
    dist.all_reduce(warm)
    torch.accelerator.synchronize()
    tensor = torch.ones(4, device=DEVICE)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has launched"])
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    doubled = tensor * 2
    completed = work.is_completed()
    if rank == 0:
        store.set("rank 0 has launched", "")
    return doubled.tolist(), completed, work.is_completed()


def test_the_host_does_not_wait_for_a_rank_that_is_late(of):
    first, _ = of(arrive_late)
    assert first == ([4.0] * 4, False, True)


def collectives_after_work(rank: int) -> Any:
    stream = torch.Stream(DEVICE)
    x = torch.full((300, 300), 1 / 300, device=DEVICE)
    wrong = 0
    for i in range(50):
        y = torch.full((300, 300), float(i + rank), device=DEVICE)
        for _ in range(3):
            y = y @ x
        dist.all_reduce(y)
        total = y[0, 0].clone()
        del y  # its memory is free for others while the collective may use it
        torch.full((300, 300), -1.0, device=DEVICE)
        with stream:
            z = torch.full((10,), float(rank), device=DEVICE)
            work = dist.broadcast(z, 1, async_op=True)
        assert work is not None
        work.wait()
        wrong += abs(total.item() - 2 * i - 1) > 1e-2
        wrong += z[0].item() != 1
    return wrong


def test_a_collective_comes_after_the_work_before_it_and_before_the_work_after_it(of):
    assert of(collectives_after_work) == [0, 0]


def callbacks(rank: int) -> Any:
    tensor = torch.ones(3, device=DEVICE)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    future = work.get_future().then(lambda done: done.value()[0] * 10)
    return future.wait().tolist()


def test_futures_and_their_callbacks_come_after_the_collective(of):
    assert of(callbacks) == [[20.0] * 3] * 2


def arithmetic(rank: int) -> Any:
    def reduced(dtype: torch.dtype, op: Any) -> Any:
        tensor = torch.tensor([1, 2, 7], device=DEVICE).to(dtype)
        dist.all_reduce(tensor, op)
        return tensor.float().tolist()

    return [
        reduced(torch.int16, ReduceOp.SUM),
        reduced(torch.float8_e4m3fn, ReduceOp.SUM),
        reduced(torch.int32, ReduceOp.AVG),
        reduced(torch.bfloat16, ReduceOp.AVG),
        reduced(torch.float32, dist._make_nccl_premul_sum(0.5)),
        reduced(torch.bool, ReduceOp.SUM),
    ]


def test_what_gloo_cannot_add(of):
    sums, ones = [2.0, 4.0, 14.0], [1.0, 2.0, 7.0]
    assert of(arithmetic) == [[sums, sums, ones, ones, ones, [1.0] * 3]] * 2


def sparse(rank: int) -> Any:
    """Sums of sparse tensors on the device and by Gloo, whether another operation is refused, and a gradient by DDP."""
    sums = []
    for dtype in (torch.float32, torch.int16):
        for device in (DEVICE, "cpu"):
            values = torch.arange(1, 4, dtype=torch.int32 if device == "cpu" else dtype) * (rank + 1)
            tensor = torch.sparse_coo_tensor([[0, 2, 3 + rank]], values, (8,), device=device)
            dist.all_reduce(tensor)
            sums.append((tensor.dtype, tensor.to_dense().tolist()))
    with pytest.raises(ValueError, match=r"occl::all_reduce_sparse takes ReduceOp\.SUM"):
        dist.all_reduce(tensor.to(DEVICE), dist.ReduceOp.MAX)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(4, 2, sparse=True).to(DEVICE))
    net(torch.tensor([rank, 3], device=DEVICE)).sum().backward()
    return sums, net.module.weight.grad.to_dense().tolist()


def test_sums_of_sparse_tensors(of):
    for sums, gradient in of(sparse):
        for (dtype, got), (_, expected), wanted in zip(
            sums[::2], sums[1::2], (torch.float32, torch.int16), strict=True
        ):
            assert dtype == wanted
            assert got == expected
        assert gradient == [[0.5, 0.5], [0.5, 0.5], [0, 0], [1, 1]]


def uneven(rank: int) -> Any:
    size = dist.get_world_size()
    gathered = [torch.zeros(i + 1, device=DEVICE) for i in range(size)]
    dist.all_gather(gathered, torch.full((rank + 1,), float(rank), device=DEVICE))
    scattered = torch.zeros(rank + 1, device=DEVICE)
    dist.reduce_scatter(scattered, [torch.full((i + 1,), float(i), device=DEVICE) for i in range(size)])
    exchanged = torch.zeros(sum(i + 1 for i in range(size)), device=DEVICE)
    dist.all_to_all_single(
        exchanged,
        torch.full((size * (rank + 1),), float(rank), device=DEVICE),
        [i + 1 for i in range(size)],
        [rank + 1] * size,
    )
    return [each.tolist() for each in gathered], scattered.tolist(), exchanged.tolist()


@pytest.mark.any_device
def test_uneven_sizes(tmp_path):
    for rank, (gathered, scattered, exchanged) in enumerate(run_ranks(uneven, 3, tmp_path)):
        assert gathered == [[0.0], [1.0] * 2, [2.0] * 3]
        assert scattered == [3.0 * rank] * (rank + 1)
        assert exchanged == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]


def together(rank: int) -> Any:
    other = 1 - rank
    sent = [torch.full((100_000,), float(rank + i), device=DEVICE) for i in range(3)]
    received = [torch.zeros(100_000, device=DEVICE) for _ in range(3)]
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, tensor, other) for tensor in sent]
        + [dist.P2POp(dist.irecv, tensor, other) for tensor in received]
    )
    for work in works:
        work.wait()
    tensors = [torch.ones(2, device=DEVICE), torch.full((3,), 2.0, device=DEVICE)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    return [each[0].item() for each in received], [each.tolist() for each in tensors]


def test_calls_that_are_made_together(of):
    for rank, (received, tensors) in enumerate(of(together)):
        assert received == [1.0 - rank + i for i in range(3)]
        assert tensors == [[2.0] * 2, [4.0] * 3]


def first_call_between_two_of_three(rank: int) -> Any:
    tensor = torch.full((2,), float(rank), device=DEVICE)
    if rank == 0:
        dist.send(tensor, 1)
    if rank == 1:
        dist.recv(tensor, 0)
        return tensor.tolist()
    return None


@pytest.mark.any_device
def test_two_ranks_can_begin_without_the_third(tmp_path):
    # Without Gloo for the CPU: its ranks connect at the start, and fail if one ends before all are connected.
    assert run_ranks(first_call_between_two_of_three, 3, tmp_path, backend="occl") == [None, [0.0, 0.0], None]


def from_any_rank(rank: int) -> Any:
    tensor = torch.full((2,), float(rank), device=DEVICE)
    dist.barrier()  # all ranks have to be there
    if rank:
        dist.send(tensor, 0)
        return None
    sources = [dist.recv(tensor) for _ in range(2)]
    return sorted(sources), tensor[0].item() == sources[-1]


@pytest.mark.any_device
def test_receive_from_any_rank(tmp_path):
    assert run_ranks(from_any_rank, 3, tmp_path)[0] == ([1, 2], True)


def groups(rank: int) -> Any:
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tensor = torch.full((1,), float(rank), device=DEVICE)
    dist.all_reduce(tensor, group=halves[rank // 2])
    objects = [None] * 4
    dist.all_gather_object(objects, {"rank": rank})
    mesh = dist.init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("a", "b"))
    column = torch.full((1,), float(rank), device=DEVICE)
    dist.all_reduce(column, group=mesh["a"].get_group())
    dist.monitored_barrier(dist.new_group(backend="gloo"))
    dist.barrier()
    return tensor.item(), objects[3], column.item()


def test_groups_meshes_objects_and_barriers(tmp_path):
    environment = {"TORCH_OPENREG_DEVICES": "4"}
    for rank, result in enumerate(run_ranks(groups, 4, tmp_path, environment=environment)):
        assert result == (1.0 if rank < 2 else 5.0, {"rank": 3}, 2.0 * (rank % 2) + 2)


def without_gloo(rank: int) -> Any:
    """What a group serves that has no backend for the CPU."""
    device = torch.device(DEVICE)
    group = dist.distributed_c10d._get_default_group()
    dist.barrier()
    dist.barrier(device_ids=[1])
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=50), group)
    single = [torch.zeros(4, device=device), torch.zeros(2, 3, device=device)]
    with dist._coalescing_manager():
        for output, shape in zip(single, ((2,), (1, 3)), strict=True):
            dist.all_gather_into_tensor(output, torch.full(shape, rank + 1.0, device=device))
    lists = [[torch.zeros(2, device=device), torch.zeros(1, device=device)] for _ in range(2)]
    dist.all_gather_coalesced(
        lists, [torch.full((2,), rank + 1.0, device=device), torch.full((1,), rank + 3.0, device=device)]
    )
    halves = torch.zeros(2, device=device)
    dist.reduce_scatter_tensor(halves, torch.arange(4.0, device=device), dist._make_nccl_premul_sum(0.5))
    unsigned = torch.tensor([2**31], device=device, dtype=torch.int64).to(torch.uint32)
    dist.all_reduce(unsigned, ReduceOp.MAX)
    work = dist.all_reduce(torch.ones(2, device=device), async_op=True)
    assert work is not None
    work.block_current_stream()
    work.wait(timedelta(seconds=50))
    return (
        [each.tolist() for each in single],
        [[each.tolist() for each in each_rank] for each_rank in lists],
        halves.tolist(),
        unsigned.tolist(),
        [each.tolist() for each in work.result()],
        work.is_success(),
        work.exception(),
        group._get_backend(device).name(),
    )


def test_a_group_of_the_device_alone(tmp_path):
    for rank, (single, lists, halves, unsigned, result, success, error, name) in enumerate(
        run_ranks(without_gloo, 2, tmp_path, backend="occl")
    ):
        assert single == [[1, 1, 2, 2], [[1, 1, 1], [2, 2, 2]]]
        assert lists == [[[1, 1], [3]], [[2, 2], [4]]]
        assert halves == [2.0 * rank, 2.0 * rank + 1]
        assert unsigned == [2**31]
        assert (result, success, error, name) == ([[2.0, 2.0]], True, None, "occl")


def split(rank: int, store: str, backend: str | None) -> Any:
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=3, device_id=torch.device(f"{DEVICE}:0")
    )
    part = dist.split_group(split_ranks=[[0, 1], [2]])
    sums = []
    for device in (DEVICE, "cpu", DEVICE) if "gloo" in (backend or "") else (DEVICE,):
        tensor = torch.full((1,), float(rank), device=device)
        dist.all_reduce(tensor, group=part)
        sums.append(tensor.item())
    return sums


@pytest.mark.parametrize(
    "backend",
    [None, "occl", *(pytest.param(name, marks=pytest.mark.full) for name in ("gloo", "cpu:gloo,openreg:occl"))],
)
def test_split_group(backend, tmp_path):
    sums = run_ranks(split, 3, tmp_path, str(tmp_path / "file"), backend, backend="")
    assert [set(each) for each in sums] == [{1.0}, {1.0}, {2.0}]


def reduce_in_inference_mode(rank: int) -> Any:
    device = DEVICE
    with torch.inference_mode():
        part = torch.zeros(2, device=device)
        dist.reduce_scatter_tensor(part, torch.arange(4.0, device=device))
        parts = [torch.arange(2.0, device=device), torch.arange(2.0, 4.0, device=device)]
        scattered = torch.zeros(2, device=device)
        dist.reduce_scatter(scattered, parts)
        reduced = torch.ones(2, device=device)
        dist.all_reduce(reduced)
        gathered = torch.zeros(4, device=device)
        dist.all_gather_into_tensor(gathered, torch.full((2,), float(rank), device=device))
        dist.broadcast(reduced, 0)
        return [each.tolist() for each in (part, scattered, reduced, gathered)]


@pytest.mark.any_device
def test_collectives_of_inference_tensors(tmp_path):
    for rank, results in enumerate(run_ranks(reduce_in_inference_mode, 2, tmp_path)):
        part = [4.0 * rank, 4.0 * rank + 2]
        assert results == [part, part, [2, 2], [0, 0, 1, 1]]


def reduce_uint64(rank: int) -> Any:
    large = torch.tensor([2**63 + rank, 3], dtype=torch.uint64)
    results: dict[str, Any] = {}
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        tensor = large.to(DEVICE)
        dist.all_reduce(tensor, op)
        results[str(op)] = tensor.tolist()
    for op in (ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX):
        with pytest.raises(TypeError, match="uint64"):
            dist.all_reduce(large.to(DEVICE), op)
    dist.barrier()
    return results


@pytest.mark.any_device
def test_reductions_of_uint64(tmp_path):
    expected = {
        str(ReduceOp.SUM): [1, 6],
        str(ReduceOp.PRODUCT): [2**63, 9],
        str(ReduceOp.BAND): [2**63, 3],
        str(ReduceOp.BOR): [2**63 + 1, 3],
        str(ReduceOp.BXOR): [1, 0],
    }
    assert run_ranks(reduce_uint64, 2, tmp_path) == [expected, expected]


def lose_a_rank(rank: int) -> Any:
    tensor = torch.ones(4, device=DEVICE)
    dist.all_reduce(tensor)
    torch.accelerator.synchronize()
    if rank == 1:
        os._exit(3)
    dist.all_reduce(tensor)
    try:
        torch.accelerator.synchronize()
    except torch.AcceleratorError as error:
        return str(error)
    return None


@pytest.mark.any_device
def test_a_rank_that_dies_fails_the_collective_of_the_others(tmp_path):
    message, _ = run_ranks(lose_a_rank, 2, tmp_path, expect_exit={1: 3})
    assert "occl::all_reduce (number 2 of process group " in message
    assert "rank 0 of 2) failed: " in message


def wait_alone(rank: int) -> Any:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 is done"], timedelta(seconds=60))
        return None
    tensor = torch.ones(4, device=DEVICE)
    begin = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    with pytest.raises(dist.DistBackendError, match="did not complete within 300 ms"):
        work.wait(timedelta(milliseconds=300))
    work.wait()
    with pytest.raises(torch.AcceleratorError, match=r"all_reduce .*rank 0 of 2.* failed"):
        tensor.cpu()
    store.set("rank 0 is done", "")
    return time.monotonic() - begin < 10


@pytest.mark.any_device
def test_timeouts(tmp_path):
    assert run_ranks(wait_alone, 2, tmp_path, timeout=2)[0]


def detail(rank: int) -> Any:
    for device in (DEVICE, "cpu"):
        net = DistributedDataParallel(torch.nn.Linear(2, 2).to(device))
        net(torch.ones(1, 2, device=device)).sum().backward()
    with pytest.raises(RuntimeError, match="shape") as error:
        dist.all_reduce(torch.ones(2 + rank, device=DEVICE))
    return str(error.value)


@pytest.mark.any_device
def test_debug_detail_trains_and_names_what_does_not_fit(tmp_path):
    for message in run_ranks(detail, 2, tmp_path, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}):
        assert "ALLREDUCE" in message and "TensorShape=[2]" in message and "TensorShape=[3]" in message


def leave_work_in_flight(rank: int) -> Any:
    tensor = torch.ones(4, device=DEVICE)
    if rank == 0:
        dist.all_reduce(tensor, async_op=True)
        dist.distributed_c10d._get_default_group().abort()
        with pytest.raises(torch.AcceleratorError, match="aborted"):
            torch.accelerator.synchronize()
    return True


@pytest.mark.any_device
def test_abort(tmp_path):
    # Without Gloo for the CPU, which connects all ranks at once: one would abort while the other still connects.
    assert run_ranks(leave_work_in_flight, 2, tmp_path, backend="occl") == [True, True]


ALONE = (
    "import sys, torch, torch.distributed as dist\n"
    "dist.init_process_group('occl', init_method=f'file://{sys.argv[1]}', rank=0, world_size=2)\n"
    "x = torch.ones(4, device='openreg')\n"
    "work = dist.all_reduce(x, async_op=True)\n"
)


def run_alone(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A rank of two of which the other never comes."""
    command = [sys.executable, "-c", ALONE + program, str(folder / "store")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_process_ends_though_a_collective_does_not(tmp_path):
    begin = time.monotonic()
    result = run_alone("", tmp_path)
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    "wait", ["torch.accelerator.synchronize()", "import datetime; work.wait(datetime.timedelta(hours=1))"]
)
def test_a_wait_for_a_collective_can_be_interrupted(wait, tmp_path):
    result = run_alone(
        "import os, signal, threading, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # it may be ignored in the background
        "threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        f"try: {wait}\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "sys.stdout.flush(); os._exit(0)\n",
        tmp_path,
    )
    assert result.stdout == "interrupted\n", result.stderr


@pytest.mark.any_device
def test_groups_are_made_without_a_warning_and_record_each_collective_once(tmp_path):
    program = (
        "import os, pickle, torch, torch.distributed as dist\n"
        f"store = f'file://{tmp_path}/store'\n"
        "dist.init_process_group(init_method=store, rank=0, world_size=1)\n"
        f"dist.all_reduce(torch.ones(4, device='{DEVICE}'), group=dist.new_group([0]))\n"
        "torch.accelerator.synchronize()\n"
        "entries = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())['entries']\n"
        "print(*(entry['profiling_name'] for entry in entries))\n"
        "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "gloo:all_reduce\n"), result.stderr
    assert "Warning" not in result.stderr and "Exception" not in result.stderr


def test_a_collective_in_a_forked_child_is_refused(tmp_path):
    result = run_alone(
        "import os\n"
        "if os.fork() == 0:\n"
        "    try: dist.all_reduce(x)\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait(); os._exit(0)\n",
        tmp_path,
    )
    assert "forked" in result.stdout


def test_wrong_tensors_are_refused_at_the_call(of):
    for errors in of(refused):
        assert errors == [
            "openreg: occl::all_gather_single takes one tensor of 2 times the size of the other (got [5] and [2])",
            "openreg: occl::all_reduce takes dense openreg tensors (got one on cpu with layout Strided)",
            "openreg: torch.bool does not support ReduceOp.AVG; use ReduceOp.SUM, which is a logical or",
        ]


def refused(rank: int) -> list[str]:
    ones = lambda *shape, **how: torch.ones(*shape, device=DEVICE, **how)  # noqa: E731
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device(DEVICE))
    errors = []
    for call in (
        lambda: dist.all_gather_into_tensor(ones(5), ones(2)),
        lambda: group.allreduce([torch.ones(2)]),
        lambda: dist.all_reduce(ones(2, dtype=torch.bool), ReduceOp.AVG),
    ):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        errors.append(str(error.value))
    return errors


def many_groups(rank: int) -> Any:
    tensor = torch.ones(1, device=DEVICE)
    before = threads()
    for _ in range(100):
        group = dist.new_group([0, 1])
        dist.all_reduce(tensor, ReduceOp.MAX, group=group)
        dist.destroy_process_group(group)
    return tensor.item(), threads() - before < 20


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_groups_leave_nothing_behind(of):
    assert of(many_groups) == [(1.0, True)] * 2
