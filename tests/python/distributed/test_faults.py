"""What goes wrong in other ranks: the ranks that are left raise in time, say where and why, and end."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.any_device


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=DEVICE)


def coalesced(group: Any) -> Any:
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for _ in range(2):
            dist.all_reduce(ones(4), group=group)
    return manager.works[0]


def of_each(group: Any) -> list[torch.Tensor]:
    return [ones(4) for _ in range(dist.get_world_size(group))]


def size(group: Any) -> int:
    return dist.get_world_size(group)


# Every call that cannot end in the first rank of a group without the last.
CALLS: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda group: dist.broadcast(ones(4), group_src=size(group) - 1, group=group, async_op=True),
    "all_reduce": lambda group: dist.all_reduce(ones(4), group=group, async_op=True),
    "reduce": lambda group: dist.reduce(ones(4), group_dst=0, group=group, async_op=True),
    "all_gather": lambda group: dist.all_gather(of_each(group), ones(4), group=group, async_op=True),
    "all_gather_single": lambda group: dist.all_gather_into_tensor(
        ones(4 * size(group)), ones(4), group=group, async_op=True
    ),
    "reduce_scatter": lambda group: dist.reduce_scatter(ones(4), of_each(group), group=group, async_op=True),
    "reduce_scatter_single": lambda group: dist.reduce_scatter_tensor(
        ones(4), ones(4 * size(group)), group=group, async_op=True
    ),
    "all_to_all": lambda group: dist.all_to_all(of_each(group), of_each(group), group=group, async_op=True),
    "all_to_all_single": lambda group: dist.all_to_all_single(
        ones(4 * size(group)), ones(4 * size(group)), group=group, async_op=True
    ),
    "gather": lambda group: dist.gather(
        ones(4), of_each(group) if dist.get_rank(group) == 0 else None, group_dst=0, group=group, async_op=True
    ),
    "scatter": lambda group: dist.scatter(
        ones(4),
        of_each(group) if dist.get_rank(group) == size(group) - 1 else None,
        group_src=size(group) - 1,
        group=group,
        async_op=True,
    ),
    "barrier": lambda group: dist.barrier(group, device_ids=[0], async_op=True),
    "all_reduce_coalesced": coalesced,
    "recv": lambda group: dist.irecv(ones(4), group=group, group_src=0 if dist.get_rank(group) else size(group) - 1),
}


def groups_that_have_met(names: Iterable[str], ranks: list[int], **how: Any) -> dict[str, Any]:
    """A group for each name, whose ranks are connected."""
    groups = {name: dist.new_group(ranks, group_desc=f"for {name}", **how) for name in names}
    if dist.get_rank() in ranks:
        for group in groups.values():
            dist.all_reduce(ones(1), group=group)
        torch.accelerator.synchronize()
    return groups


def impatient_groups(*names: str) -> dict[str, Any]:
    return groups_that_have_met(names, [0, 1], backend="occl", timeout=timedelta(seconds=4))


def failures(groups: dict[str, Any]) -> dict[str, str]:
    """What each call raises. All are under way at the same time."""
    works = {name: call(groups[name]) for name, call in CALLS.items()}
    found = {}
    for name, work in works.items():
        with pytest.raises((dist.DistBackendError, torch.AcceleratorError)) as error:
            work.wait(timedelta(seconds=40))
        found[name] = str(error.value)
    clear_failures()
    return found


def failure() -> str:
    """The device's oldest failure."""
    with pytest.raises(torch.AcceleratorError) as error:
        torch.accelerator.synchronize()
    return str(error.value)


def clear_failures() -> None:
    while True:
        try:
            return torch.accelerator.synchronize()
        except torch.AcceleratorError:
            pass


def store() -> Any:
    return dist.distributed_c10d._get_default_store()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(DEVICE)


def lose_a_rank(rank: int, ranks: list[int], timeout: timedelta) -> Any:
    """The last of `ranks` is killed while it is in a collective of each kind and in a step of DDP."""
    groups = groups_that_have_met(CALLS, ranks, timeout=timeout)
    if rank not in ranks:
        store().wait(["failed"])
        return None
    steps = groups_that_have_met(["ddp", "fsdp"], ranks, timeout=timeout, use_local_synchronization=True)
    ddp = DistributedDataParallel(net(), process_group=steps["ddp"])
    fsdp = fully_shard(net(), mesh=dist.DeviceMesh.from_group(steps["fsdp"], DEVICE))
    for module in (ddp, fsdp):
        module(ones(2, 8)).sum().backward()
    torch.accelerator.synchronize()
    loss = ddp(ones(2, 8)).sum()
    if rank != ranks[0]:
        for name, call in CALLS.items():
            call(groups[name])
        if rank == ranks[-1]:
            store().set("under way", str(os.getpid()))
        store().wait(["failed"])
        return clear_failures()
    os.kill(int(store().get("under way")), signal.SIGKILL)
    begin = time.monotonic()
    found = failures(groups)
    loss.backward()
    found["ddp"] = failure()
    clear_failures()
    fsdp(ones(2, 8))
    found["fsdp"] = failure()
    clear_failures()
    elapsed = time.monotonic() - begin
    store().set("failed", "")
    return found, elapsed


def check_loss(found: dict[str, str], group_rank: str, gone: str) -> None:
    steps = {"ddp": r"all_reduce\w*", "fsdp": r"all_gather\w*"}
    for call, message in found.items():
        begun = rf'occl::{steps.get(call, call)} \(number \d+ of process group "for {call}", {group_rank}\) '
        assert re.search(rf"{begun}failed: .*\. Other ranks: .*{gone}: no report", message), (call, message)


def test_a_rank_that_is_killed_fails_every_kind_of_collective_and_step_of_the_others(tmp_path):
    timeout = timedelta(seconds=60)
    (found, elapsed), _ = run_ranks(lose_a_rank, 2, tmp_path, [0, 1], timeout, expect_exit={1: -9})
    check_loss(found, "rank 0 of 2", "rank 1")
    assert elapsed < 25  # well before the timeout


@pytest.mark.full
def test_a_rank_of_a_part_of_the_ranks_is_killed(tmp_path):
    # The connections of a rank that waits for another survivor stay open: the timeout ends its wait.
    timeout = timedelta(seconds=10)
    results = run_ranks(lose_a_rank, 4, tmp_path, [1, 2, 3], timeout, expect_exit={3: -9})
    assert results[0] is None
    check_loss(results[1][0], "rank 0 of 3", "global ranks? (2-)?3")


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """What a function returns in each of two ranks. Their groups go on after what has failed in others."""
    functions = (call_others, call_in_another_order, free_memory_in_use, destroy_in_flight)
    results = run_ranks(run_in_turn, 2, tmp_path_factory.mktemp("ranks"), *functions)
    return lambda function: [result[function.__name__] for result in results]


def call_others(rank: int) -> str:
    group = impatient_groups("differing")["differing"]
    if rank == 0:
        dist.all_reduce(ones(4), group=group)
    else:
        dist.broadcast(ones(4), 0, group=group)
    message = failure()
    clear_failures()
    return message


@pytest.mark.openreg_only
def test_the_error_of_different_collectives_names_those_of_the_other_ranks(of):
    first, second = of(call_others)
    assert "occl::all_reduce (number 2 of" in first and "rank 1: in occl::broadcast (number 2)" in first
    assert "occl::broadcast (number 2 of" in second and "rank 0: in occl::all_reduce (number 2)" in second


def call_in_another_order(rank: int) -> str:
    """As with NCCL the second waits for the first, which the other rank has not begun."""
    groups = impatient_groups("rows", "columns")
    tensor = ones(4)
    for group in groups.values() if rank == 0 else reversed(groups.values()):
        dist.all_reduce(tensor, group=group)
    message = failure()
    clear_failures()
    return message


@pytest.mark.openreg_only
def test_groups_that_ranks_use_in_another_order_are_named(of):
    messages = of(call_in_another_order)
    order = [("rows", "columns"), ("columns", "rows")]
    for rank, (message, (mine, other)) in enumerate(zip(messages, order, strict=True)):
        assert f'occl::all_reduce (number 2 of process group "for {mine}", rank {rank} of 2) failed' in message
        waits = f"rank {1 - rank}: before occl::all_reduce (number 2), in occl::all_reduce (number 2 of process group "
        assert f'{waits}"for {other}")' in message


def come_too_late(rank: int) -> Any:
    groups = impatient_groups(*CALLS)
    if rank == 0:
        found = failures(groups)
        store().set("given up", "")
        return found
    store().wait(["given up"])
    begin = time.monotonic()
    dist.all_reduce(ones(4), group=groups["all_reduce"])
    message = failure()
    clear_failures()
    return message, time.monotonic() - begin


@pytest.mark.full
def test_a_rank_that_comes_after_the_timeout_gets_an_error_as_those_that_waited(tmp_path):
    found, (message, elapsed) = run_ranks(come_too_late, 2, tmp_path)
    for call, waited in found.items():
        assert re.search(rf"occl::{call} \(number.*rank 0 of 2\) failed: .*rank 1: no report", waited), call
    assert "rank 1 of 2) failed: " in message
    assert "rank 0: in occl::all_reduce (number 2)" in message
    assert elapsed < 20


def reduce_other_sizes(rank: int) -> str:
    dist.all_reduce(ones(1))
    dist.all_reduce(ones(1000 + 100 * rank))
    message = failure()
    clear_failures()
    return message


@pytest.mark.full
def test_a_rank_that_gets_more_than_it_expects_is_ended_by_gloo_and_the_others_raise(tmp_path, capfd):
    _, message = run_ranks(reduce_other_sizes, 2, tmp_path, expect_exit={0: -signal.SIGABRT})
    assert "occl::all_reduce (number 2 of process group" in message and "rank 0: no report" in message
    assert "1100 vs 1000. Received data size doesn't match expected size" in capfd.readouterr().err


def call_with_detail(rank: int) -> list[str]:
    if rank < 2:
        (dist.recv if rank else dist.send)(ones(2), 1 - rank)  # which the third rank does not count
    dist.all_reduce(ones(2))
    errors = []
    for dtype, call in ((torch.float64, dist.all_reduce), (torch.float32, lambda tensor: dist.broadcast(tensor, 0))):
        tensor = torch.ones(2, device=DEVICE)
        with pytest.raises(RuntimeError) as error:
            call(tensor.to(dtype)) if rank == 1 else dist.all_reduce(tensor)
        errors.append(str(error.value))
    return errors


@pytest.mark.full
def test_debug_detail_names_dtypes_and_collectives_that_differ(tmp_path):
    results = run_ranks(call_with_detail, 3, tmp_path, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    for dtypes, collectives in results:
        assert "TensorDtypes=Float" in dtypes and "TensorDtypes=Double" in dtypes
        assert "OpType=ALLREDUCE" in collectives and "OpType=BROADCAST" in collectives


def free_memory_in_use(rank: int) -> Any:
    """Rank 1 comes when rank 0 has freed its tensors and filled others of their size."""
    group = dist.new_group()
    if rank == 1:
        store().wait(["freed"])
    kept, used = [], set()
    for i in range(20):
        tensor = torch.full((1000,), float(i), device=DEVICE)
        used.add(tensor.data_ptr())
        dist.all_reduce(tensor, group=group, async_op=True)
        del tensor
        kept.append(torch.full((1000,), -1.0, device=DEVICE))
    shared = used & {tensor.data_ptr() for tensor in kept}
    if rank == 0:
        store().set("freed", "")
    dist.all_reduce(ones(1), group=group)
    torch.accelerator.synchronize()
    return len(shared) if rank == 0 else 0, all(bool((tensor == -1).all()) for tensor in kept)


@pytest.mark.openreg_only
def test_memory_that_is_freed_is_not_used_again_before_its_collective_has_ended(of):
    assert of(free_memory_in_use) == [(0, True)] * 2


def destroy_in_flight(rank: int) -> list[float]:
    """Rank 1 comes when rank 0 is to destroy the group, with one collective under way and one queued."""
    group = dist.new_group()
    tensor = torch.full((4,), rank + 1.0, device=DEVICE)
    if rank == 1:
        store().wait(["to be destroyed"])
    for _ in range(2):
        dist.all_reduce(tensor, group=group)
    if rank == 0:
        store().set("to be destroyed", "")
        dist.destroy_process_group(group)
    return tensor.tolist()


@pytest.mark.openreg_only
def test_a_group_is_destroyed_when_what_is_in_flight_has_ended(of):
    assert of(destroy_in_flight) == [[6.0] * 4] * 2


def count_resources(rank: int, folder: str) -> Any:
    """Threads, file descriptors and bytes of the process, before and after many groups."""

    def resources() -> tuple[int, int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        threads, files = (len(list(Path("/proc/self", of).iterdir())) for of in ("task", "fd"))
        return threads, files, pages * os.sysconf("SC_PAGESIZE")

    def use_groups(count: int) -> None:
        for _ in range(count):
            group = dist.new_group()
            dist.all_reduce(ones(1), group=group)
            dist.destroy_process_group(group)

    names = itertools.count()

    def use_default_groups(count: int) -> None:
        for _ in range(count):
            dist.destroy_process_group()
            dist.init_process_group(init_method=f"file://{folder}/{next(names)}", rank=rank, world_size=2)
            dist.all_reduce(ones(1))

    found = []
    for use in (lambda: use_groups(250), lambda: use_default_groups(25)):
        use()
        torch.accelerator.synchronize()
        before = resources()
        use()
        torch.accelerator.synchronize()
        found.append([after - b for after, b in zip(resources(), before, strict=True)])
    return found


@pytest.mark.openreg_only
@pytest.mark.full
def test_groups_that_are_made_and_destroyed_leave_nothing_behind(tmp_path):
    for found in run_ranks(count_resources, 2, tmp_path, str(tmp_path)):
        for threads, files, resident in found:
            assert threads <= 8 and files <= 8
            assert resident < 16 << 20
