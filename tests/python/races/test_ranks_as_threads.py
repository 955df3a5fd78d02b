"""Ranks that are threads of one process share memory: a collective orders what their streams do with it. Whichever
thread submits its part first, the result is the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

threaded = pytest.importorskip("torch.testing._internal.distributed.multi_threaded_pg")

DEVICE = "openreg"
pytestmark = pytest.mark.skipif(torch.openreg.device_count() < 2, reason="two ranks need two devices")

Step = Callable[[], object]


@pytest.fixture(autouse=True)
def _a_state_of_torch_distributed_for_each_thread() -> Iterator[None]:
    threaded._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    yield
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    threaded._uninstall_threaded_pg()


def run_ranks(programs: list[list[Step]], first: int | None = None, backend: str | None = None) -> list[str]:
    """Runs the steps of each program as a rank, with a device or stream of its own, and returns the races that were
    found: each step that has one does nothing else. `first`: the other ranks begin when this one has submitted all;
    None: they run as they come."""
    store, races, errors = dist.HashStore(), [], []
    is_through = threading.Event()
    together = threading.Barrier(len(programs))

    def main(rank: int) -> None:
        torch.openreg.set_device(rank % torch.openreg.device_count())
        try:
            if rank >= torch.openreg.device_count():  # on a stream of its own beside the device's first rank
                torch.openreg.set_stream(torch.openreg.Stream())
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=len(programs), timeout=timedelta(seconds=30)
            )
            dist.all_reduce(torch.ones(1, device=DEVICE))  # so that the ranks are connected
            torch.openreg.synchronize()
            together.wait(30)
            if first not in (None, rank):
                assert is_through.wait(30)
            for step in programs[rank]:
                try:
                    step()
                except torch.openreg.UnsynchronizedAccessError as race:
                    races.append(str(race))
            is_through.set()
            together.wait(30)
            torch.openreg.synchronize()
            together.wait(30)
            dist.destroy_process_group()
        except BaseException as error:
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=main, args=(rank,)) for rank in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return races


def rank() -> int:
    return dist.get_rank()


def ones(count: int = 2) -> torch.Tensor:
    return torch.ones(count, device=DEVICE)


def work_of(work: dist.Work | None) -> None:
    assert work is not None
    work.wait()


def all_reduce() -> None:
    dist.all_reduce(ones())


def transfer(source: int) -> None:
    dist.send(ones(), 1 - source) if rank() == source else dist.recv(ones(), source)


def transfers(source: int) -> None:
    kind = dist.isend if rank() == source else dist.irecv
    for work in dist.batch_isend_irecv([dist.P2POp(kind, ones(), 1 - rank(), tag=tag) for tag in (3, 4)]):
        work.wait()


def lists(at: bool) -> list[torch.Tensor] | None:
    return [ones(), ones()] if at else None


TO_ALL: dict[str, Step] = {
    "all_reduce": all_reduce,
    "all_reduce, asynchronous": lambda: work_of(dist.all_reduce(ones(), async_op=True)),
    "all_gather": lambda: dist.all_gather([ones(), ones()], ones()),
    "all_gather_single": lambda: dist.all_gather_single(ones(4), ones()),
    "reduce_scatter": lambda: dist.reduce_scatter(ones(), [ones(), ones()]),
    "reduce_scatter_single": lambda: dist.reduce_scatter_single(ones(), ones(4)),
    "all_to_all_single": lambda: dist.all_to_all_single(ones(), ones()),
    "all_to_all": lambda: dist.all_to_all([ones(), ones()], [ones(), ones()]),
    "twice": lambda: (dist.all_reduce(ones()), dist.broadcast(ones(), 1)),
}
# From the rank to the other one, but not back.
ONE_WAY: dict[str, Callable[[int], object]] = {
    "broadcast": lambda source: dist.broadcast(ones(), source),
    "scatter": lambda source: dist.scatter(ones(), lists(rank() == source), source),
    "reduce": lambda source: dist.reduce(ones(), 1 - source),
    "gather": lambda source: dist.gather(ones(), lists(rank() != source), 1 - source),
    "send and receive": transfer,
    "a batch of sends and receives": transfers,
}
FROM_FIRST = {**TO_ALL, **{name: lambda call=call: call(0) for name, call in ONE_WAY.items()}}


class Shared:
    """Memory of the first rank's device, which it writes on its stream and the second rank reads on another one."""

    def __init__(self) -> None:
        self.x = torch.zeros(1000, device=f"{DEVICE}:0")
        self.side = torch.openreg.Stream(device=0)
        self.sum: torch.Tensor | None = None
        torch.openreg.synchronize()

    def write(self) -> None:
        torch.openreg._sleep(1_000_000)
        self.x.fill_(3)

    def read(self) -> None:
        self.side.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(self.side):
            self.sum = self.x.sum()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("collective", FROM_FIRST.values(), ids=FROM_FIRST)
def test_what_a_rank_does_before_a_collective_comes_before_what_others_do_after_it(collective, first):
    shared = Shared()
    races = run_ranks([[shared.write, collective], [collective, shared.read]], first)
    assert races == []
    assert shared.sum is not None and shared.sum.item() == 3000


def test_a_barrier_is_an_order_too():
    shared = Shared()
    programs: list[list[Step]] = [[shared.write, dist.barrier], [dist.barrier, shared.read]]
    assert run_ranks(programs, backend="occl") == []  # else it is the CPU's, which orders no streams


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("collective", FROM_FIRST.values(), ids=FROM_FIRST)
def test_what_a_rank_does_after_a_collective_has_no_order_with_others(collective, first):
    shared = Shared()
    races = run_ranks([[collective, shared.write], [collective, shared.read]], first)
    assert len(races) == 1 and "aten::fill_" in races[0] and "aten::sum" in races[0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("collective", ONE_WAY.values(), ids=ONE_WAY)
def test_a_collective_in_one_direction_orders_nothing_in_the_other(collective, first):
    shared = Shared()
    races = run_ranks([[shared.write, lambda: collective(1)], [lambda: collective(1), shared.read]], first)
    assert len(races) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_stream_that_did_not_wait_for_the_collective_has_no_order(first):
    shared = Shared()

    def read_without_a_wait() -> None:
        with torch.openreg.stream(shared.side):
            shared.x.sum()

    races = run_ranks([[shared.write, all_reduce], [all_reduce, read_without_a_wait]], first)
    assert len(races) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_orders_are_passed_on_by_events_and_hosts(first):
    shared, third = Shared(), torch.openreg.Stream(device=0)
    events = []

    def follow() -> None:
        events.append(torch.openreg.current_stream().record_event())
        shared.side.wait_event(events[0])
        third.wait_stream(shared.side)
        with torch.openreg.stream(third):
            shared.sum = shared.x.sum()

    races = run_ranks([[shared.write, all_reduce], [all_reduce, follow]], first)
    assert races == []
    with torch.openreg.stream(shared.side):
        shared.side.wait_event(events[0])
        assert shared.x.sum().item() == 3000


@pytest.mark.parametrize("first", [0, 1])
def test_results_in_pinned_memory_may_be_read_by_the_host_of_another_rank(first):
    shared, host = Shared(), torch.empty(1000).pin_memory()

    def follow() -> None:
        if first == 0:  # else the copy has not been submitted
            torch.openreg.current_stream().synchronize()
            assert host.sum() == 3000

    def copy() -> None:
        shared.write()
        host.copy_(shared.x, non_blocking=True)

    assert run_ranks([[copy, all_reduce], [all_reduce, follow]], first) == []


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_of_a_graph_is_ordered_like_a_command(first):
    shared, graph = Shared(), torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        shared.x.fill_(3)
    torch.openreg.synchronize()
    collective = all_reduce
    races = run_ranks([[graph.replay, collective], [collective, shared.read]], first)
    assert races == []
    races = run_ranks([[collective, graph.replay], [collective, shared.read]], first)
    assert len(races) == 1


@pytest.mark.parametrize("first", [0, 1, 2])
def test_three_ranks_pass_an_order_on(first):
    shared = Shared()
    programs: list[list[Step]] = [
        [shared.write, lambda: dist.send(ones(), 1)],
        [lambda: dist.recv(ones(), 0), lambda: dist.send(ones(), 2)],
        [lambda: dist.recv(ones(), 1), shared.read],
    ]
    assert run_ranks(programs, first) == []


OF_THREADS = {name: call for name, call in FROM_FIRST.items() if "send" not in name and name != "reduce"}


@pytest.mark.parametrize("collective", OF_THREADS.values(), ids=OF_THREADS)
def test_pytorchs_own_group_of_threads_is_silent(collective):
    shared = Shared()
    races = run_ranks([[shared.write, collective], [collective, shared.read]], backend="threaded")
    assert races == []
