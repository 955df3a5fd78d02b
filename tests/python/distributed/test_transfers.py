"""Sends and receives between two ranks: matched by tag in any order, as Gloo does on CPU tensors."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks

pytestmark = pytest.mark.any_device

BLOCKING = {"TORCH_OPENREG_LAUNCH_BLOCKING": "1"}


def full(value: float, size: int = 10) -> torch.Tensor:
    return torch.full((size,), float(value), device=DEVICE)


def wait(works: list[Any]) -> None:
    for work in works:
        work.wait()


def in_every_order(rank: int) -> list[bool]:
    """Three messages, received in each of the orders."""
    right = []
    for order in itertools.permutations(range(3)):
        if rank == 0:
            wait([dist.isend(full(tag), 1, tag=tag) for tag in range(3)])
        else:
            received = [full(-1) for _ in range(3)]
            wait([dist.irecv(received[tag], 0, tag=tag) for tag in order])
            right.append([each[0].item() for each in received] == [0, 1, 2])
    return right


def in_every_order_as_ever(rank: int) -> None:
    """`recv` waits: what was sent before, and is received later, is still there."""
    if rank == 0:
        wait([dist.isend(full(tag), 1, tag=tag) for tag in range(3)])
        return None
    received = full(-1)
    values = []
    for tag in (2, 0, 1):
        dist.recv(received, 0, tag=tag)
        values.append(received[0].item())
    assert values == [2, 0, 1]
    return None


def of_one_tag(rank: int) -> list[float]:
    if rank == 0:
        wait([dist.isend(full(i, size=1 + 1000 * (i % 3)), 1, tag=5) for i in range(30)])
        return []
    received = [full(-1, size=1 + 1000 * (i % 3)) for i in range(30)]
    wait([dist.irecv(each, 0, tag=5) for each in received])
    return [each[-1].item() for each in received]


def both_send_first(rank: int) -> float:
    received = full(-1, size=1 << 20)
    sent = dist.isend(full(rank, size=1 << 20), 1 - rank)
    wait([dist.irecv(received, 1 - rank), sent])
    return received[-1].item()


def both_send_first_in_batches(rank: int) -> float:
    received = full(-1)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, full(rank), 1 - rank)])
    wait([*works, *dist.batch_isend_irecv([dist.P2POp(dist.irecv, received, 1 - rank)])])
    return received[-1].item()


def between_devices_in_a_batch(rank: int) -> list[Any]:
    """Of which each is read at once on its own device."""
    received = []
    for size in (10, 1 << 22):
        sent = [torch.full((size,), 10.0 * rank + index, device=f"{DEVICE}:{index}") for index in (0, 1)]
        got = [torch.zeros(size, device=f"{DEVICE}:{index}") for index in (1, 0)]
        operations = [dist.P2POp(dist.isend, each, 1 - rank, tag=tag) for tag, each in enumerate(sent)]
        operations += [dist.P2POp(dist.irecv, each, 1 - rank, tag=tag) for tag, each in enumerate(got)]
        works = dist.batch_isend_irecv(operations)
        for device in (0, 1):
            with torch.openreg.device(device):
                wait(works)
        received.append([(each * 1)[-1].item() for each in got])
    return received


def from_any_rank_by_tag(rank: int) -> list[float]:
    dist.barrier()
    if rank == 0:
        wait([dist.isend(full(tag), 1, tag=tag) for tag in (1, 2)])
        return []
    received = [full(-1), full(-1)]
    dist.recv(received[1], tag=2)
    dist.recv(received[0], tag=1)
    return [each[0].item() for each in received]


CASES = (
    in_every_order,
    in_every_order_as_ever,
    of_one_tag,
    both_send_first,
    both_send_first_in_batches,
    between_devices_in_a_batch,
    from_any_rank_by_tag,
)


@pytest.mark.openreg_only
@pytest.mark.parametrize("environment", [{}, BLOCKING], ids=["asynchronous", "blocking"])
def test_transfers_are_matched_by_tag_in_any_order(environment, tmp_path):
    results = run_ranks(run_in_turn, 2, tmp_path, *CASES, environment=environment)
    assert results[1]["in_every_order"] == [True] * 6
    assert results[1]["of_one_tag"] == list(range(30))
    assert [result["both_send_first"] for result in results] == [1, 0]
    assert [result["both_send_first_in_batches"] for result in results] == [1, 0]
    assert [result["between_devices_in_a_batch"] for result in results] == [[[10, 11]] * 2, [[0, 1]] * 2]
    assert results[1]["from_any_rank_by_tag"] == [1, 2]


MANY = 600  # a queue of 1024 commands has room for some 250 transfers


def many_in_a_batch(rank: int) -> list[float]:
    """Both ranks receive first."""
    sent, received = [full(1000 * rank + i) for i in range(MANY)], [full(-1) for _ in range(MANY)]
    operations = [dist.P2POp(dist.irecv, each, 1 - rank) for each in received]
    operations += [dist.P2POp(dist.isend, each, 1 - rank) for each in sent]
    wait(dist.batch_isend_irecv(operations))
    return [each[-1].item() for each in received]


def many_without_a_batch(rank: int) -> list[float]:
    sent, received = [full(1000 * rank + i) for i in range(MANY)], [full(-1) for _ in range(MANY)]
    works = [dist.irecv(each, 1 - rank) for each in received]
    wait(works + [dist.isend(each, 1 - rank) for each in sent])
    return [each[-1].item() for each in received]


def many_in_opposite_orders(rank: int) -> list[float]:
    """Each message has a tag of its own."""
    tags = range(MANY // 2)
    if rank == 0:
        wait([dist.isend(full(tag), 1, tag=tag) for tag in tags])
        return []
    received = [full(-1) for _ in tags]
    wait([dist.irecv(received[tag], 0, tag=tag) for tag in reversed(tags)])
    return [each[-1].item() for each in received]


def groups_in_opposite_orders(rank: int) -> list[float]:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    values = [[full(i) for i in range(MANY)] for _ in groups]
    order = (0, 1) if rank == 0 else (1, 0)
    works = [dist.all_reduce(each, group=groups[which], async_op=True) for which in order for each in values[which]]
    wait(works)
    return [each[0].item() for of_group in values for each in of_group]


def many_coalesced(rank: int) -> list[float]:
    results = [torch.zeros(2, device=DEVICE) for _ in range(MANY)]
    with dist._coalescing_manager(device=torch.device(DEVICE, 0), async_ops=True) as manager:
        for i, each in enumerate(results):
            dist.broadcast(each.fill_(10 * i + rank), src=i % 2)
    manager.wait()
    return [each[0].item() for each in results]


@pytest.mark.openreg_only
@pytest.mark.parametrize("environment", [{}, BLOCKING], ids=["asynchronous", "blocking"])
def test_calls_never_wait_for_room_that_later_calls_make(environment, tmp_path):
    cases = [many_in_a_batch, many_without_a_batch, many_in_opposite_orders]
    if not environment:  # collectives that block need one order
        cases += [groups_in_opposite_orders, many_coalesced]
    results = run_ranks(run_in_turn, 2, tmp_path, *cases, environment=environment)
    for rank, result in enumerate(results):
        for name in ("many_in_a_batch", "many_without_a_batch"):
            assert result[name] == [1000 * (1 - rank) + i for i in range(MANY)]
        if not environment:
            assert result["groups_in_opposite_orders"] == [2 * i for i in range(MANY)] * 2
            assert result["many_coalesced"] == [10 * i + i % 2 for i in range(MANY)]
    assert results[1]["many_in_opposite_orders"] == list(range(MANY // 2))


def at_random(rank: int, seeds: range) -> list[int]:
    """Seeds of which the result is wrong. Ranks agree on messages and collectives, not on the order of their halves."""
    size, wrong = dist.get_world_size(), []
    for seed in seeds:
        common, mine = random.Random(seed), random.Random(f"{seed} {rank}")
        expected, received, works = [], [], []
        for block in range(3):  # a collective after each
            messages = [
                (common.randrange(size), common.randrange(size), common.randrange(3), common.choice([1, 7, 5000]))
                for _ in range(8)
            ]
            steps = [("send", i, *message) for i, message in enumerate(messages) if message[0] == rank]
            steps += [("receive", i, *message) for i, message in enumerate(messages) if message[1] == rank]
            # In any order, but those of one direction, peer and tag in that of the messages.
            places: dict[Any, list[int]] = {}
            mine.shuffle(steps)
            for place, (kind, _, source, to, tag, _) in enumerate(steps):
                places.setdefault((kind, source, to, tag), []).append(place)
            for key, at in places.items():
                ordered = sorted(step for step in steps if (step[0], *step[2:5]) == key)
                for place, step in zip(at, ordered, strict=True):
                    steps[place] = step
            for kind, i, source, to, tag, length in steps:
                value = 1000 * block + i
                if kind == "send":
                    works.append(dist.isend(full(value, length), to, tag=tag))
                else:
                    received.append(full(-1, length))
                    expected.append(float(value))
                    works.append(dist.irecv(received[-1], source, tag=tag))
            total = full(1)
            works.append(dist.all_reduce(total, async_op=True))
            received.append(total)
            expected.append(float(size))
        mine.shuffle(works)
        wait(works)
        if [each[-1].item() for each in received] != expected:
            wrong.append(seed)
    return wrong


@pytest.mark.parametrize(
    ("size", "seeds"),
    [(3, range(10)), *(pytest.param(size, range(10, 300), marks=pytest.mark.full) for size in (2, 4))],
)
def test_transfers_and_collectives_in_random_orders(size, seeds, tmp_path):
    assert run_ranks(at_random, size, tmp_path, seeds) == [[]] * size


def leave_a_receive(rank: int, end: str) -> float:
    if rank == 0:
        dist.irecv(full(0), 1, tag=3)
        dist.irecv(full(0), 0, tag=3)
        begin = time.monotonic()
        if end == "abort":
            dist.distributed_c10d._get_default_group().abort()
        dist.destroy_process_group()
        return time.monotonic() - begin
    return 0.0


@pytest.mark.parametrize("end", ["abort", pytest.param("destroy", marks=pytest.mark.full)])
def test_a_group_ends_though_a_receive_is_pending(end, tmp_path):
    # destroy_process_group() waits until the timeout of the group, abort() does not.
    seconds, _ = run_ranks(leave_a_receive, 2, tmp_path, end, backend="occl", timeout=5 if end == "destroy" else 300)
    assert seconds < 60
