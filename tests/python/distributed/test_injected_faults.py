"""Faults on purpose in collectives: what the rank with the fault sees, and what the others see."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch.openreg import faults


def ones() -> torch.Tensor:
    return torch.ones(4, device=DEVICE)


def met(seconds: int = 3) -> Any:
    """A group whose ranks are connected."""
    group = dist.new_group([0, 1], backend="occl", timeout=timedelta(seconds=seconds))
    dist.all_reduce(ones(), group=group)
    torch.accelerator.synchronize()
    return group


def failure() -> str:
    """The oldest failure of the device. There is no other afterwards."""
    with pytest.raises(torch.AcceleratorError) as error:
        torch.accelerator.synchronize()
    while True:
        try:
            torch.accelerator.synchronize()
            return str(error.value)
        except torch.AcceleratorError:
            pass


def a_collective_fails(rank: int) -> dict[str, Any]:
    group = met()
    with faults.inject("error", at="collective:2", rank=1) as fault:
        dist.all_reduce(ones(), group=group)
        torch.accelerator.synchronize()
        dist.all_reduce(ones(), group=group)
        first = failure()
    later = ""
    if rank == 1:
        dist.all_reduce(ones(), group=group)
        later = failure()
    return {"counted": fault.counted, "first": first, "later": later}


def other_groups_go_on(rank: int) -> list[float]:
    x = ones()
    dist.all_reduce(x)
    return x.tolist()


def a_collective_hangs(rank: int) -> dict[str, Any]:
    group = met()
    with faults.inject("hang", at="collective:1", rank=1) as fault:
        work = dist.all_reduce(ones(), group=group, async_op=True)
        before = work.is_completed()
        if rank == 0:
            work.wait()
            return {"error": failure()}
        dist.barrier()  # another group: rank 0 comes after its timeout
        hanging = work.is_completed()
        fault.release()
        work.wait()
        return {"before": before, "hanging": hanging, "error": failure()}


def rank_0_comes(rank: int) -> None:
    if rank == 0:
        dist.barrier()
    torch.accelerator.synchronize()


def a_hang_ends_by_abort(rank: int) -> str:
    group = met(20)
    if rank == 0:
        return ""
    with faults.inject("hang", at="collective:1"):
        work = dist.all_reduce(ones(), group=group, async_op=True)
        group._get_backend(torch.device(DEVICE)).abort()
        work.wait()
        return failure()


def a_collective_is_late(rank: int) -> tuple[float, float]:
    """When it began and ended, by a clock that both ranks have."""
    group = met(20)
    with faults.inject("slow", at="collective:*", match="occl::all_reduce", delay=0.3, rank=1):
        x = ones()
        begin = time.monotonic()
        dist.all_reduce(x, group=group)
        torch.accelerator.synchronize()
        assert x.tolist() == [2, 2, 2, 2]
        return begin, time.monotonic()


def a_device_is_lost(rank: int) -> str:
    if rank == 0:
        return ""
    group = dist.new_group([1], use_local_synchronization=True)
    with faults.inject("lost", at="collective:1"), pytest.raises(torch.AcceleratorError) as error:
        dist.all_reduce(ones(), group=group)
    torch.openreg.reset_device(keep_memory=True)
    dist.all_reduce(ones(), group=group)
    torch.accelerator.synchronize()
    return str(error.value)


FUNCTIONS = (
    a_collective_fails,
    other_groups_go_on,
    a_collective_hangs,
    rank_0_comes,
    a_hang_ends_by_abort,
    a_collective_is_late,
    a_device_is_lost,
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each function returns in each rank."""
    return run_ranks(run_in_turn, 2, tmp_path_factory.mktemp("injected"), *FUNCTIONS)


def test_a_failed_collective_fails_on_its_rank_and_the_other_waits_until_its_timeout(ranks):
    victim, other = ranks[1]["a_collective_fails"], ranks[0]["a_collective_fails"]
    assert victim["counted"] == 2
    assert "occl::all_reduce failed" in victim["first"]
    assert "injected fault (error@collective:2,rank=1)" in victim["first"]
    assert other["counted"] == 0
    assert "failed" in other["first"] and "injected fault" not in other["first"].partition("Other ranks")[0]


def test_the_group_is_unusable_afterwards_and_others_are_not(ranks):
    assert "injected fault (error@collective:2,rank=1)" in ranks[1]["a_collective_fails"]["later"]
    for rank in ranks:
        assert rank["other_groups_go_on"] == [2, 2, 2, 2]


def test_a_hanging_collective_ends_with_the_fault_and_the_other_rank_has_its_timeout(ranks):
    victim = ranks[1]["a_collective_hangs"]
    assert (victim["before"], victim["hanging"]) == (False, False)
    assert "injected fault (hang@collective:1,rank=1) has ended" in victim["error"]
    assert "occl::all_reduce failed" in ranks[0]["a_collective_hangs"]["error"]


def test_a_hanging_collective_ends_with_its_group(ranks):
    assert "the group was aborted" in ranks[1]["a_hang_ends_by_abort"]


def test_a_late_rank_delays_the_others(ranks):
    begin_of_the_late_one, _ = ranks[1]["a_collective_is_late"]
    assert all(rank["a_collective_is_late"][1] >= begin_of_the_late_one + 0.3 for rank in ranks)


def test_a_device_is_lost_at_a_collective(ranks):
    assert "openreg:0: the device is lost: injected fault (lost@collective:1)" in ranks[1]["a_device_is_lost"]


def survives(rank: int) -> str:
    x = ones()
    for _ in range(2):
        dist.all_reduce(x)
        torch.accelerator.synchronize()
    dist.all_reduce(x)
    return failure()


def test_a_rank_ends_and_the_other_learns_of_it(tmp_path: Path):
    results = run_ranks(
        survives,
        2,
        tmp_path,
        environment={"TORCH_OPENREG_FAULTS": "exit@collective:3,rank=1"},
        expect_exit={1: 1},
    )
    assert "occl::all_reduce (number 3 of process group" in results[0]
    assert results[1] is None
