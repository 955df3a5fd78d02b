"""Pools: memory that is cached apart (torch.openreg.MemPool, use_mem_pool)."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from torch_openreg import _C

MIB = 1 << 20

MemPool, use_mem_pool = torch.openreg.MemPool, torch.openreg.use_mem_pool


@pytest.fixture(autouse=True)
def _nothing_is_cached():
    gc.collect()
    torch.openreg.empty_cache()


def empty(size, device="openreg"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def pool_of(tensor):
    """The id of the pool that a tensor's memory is of."""
    address = tensor.untyped_storage().data_ptr()
    for segment in torch.openreg.memory_snapshot():
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return segment["segment_pool_id"]
    raise AssertionError("the memory is in no segment")


def reserved_by(pool_id, device=0):
    name = f"reserved_bytes_by_private_pools.{pool_id[0]}_{pool_id[1]}.all.current"
    return torch.openreg.memory_stats(device).get(name)


def test_allocations_come_from_the_pool_inside_and_from_the_default_one_outside():
    pool = MemPool()
    before = empty(3 * MIB)
    with use_mem_pool(pool):
        inside = [empty(3 * MIB), empty(1000)]
    after = empty(3 * MIB)
    assert [pool_of(x) for x in (before, *inside, after)] == [(0, 0), pool.id, pool.id, (0, 0)]


def test_ids_are_tuples_of_which_no_two_are_equal():
    pools = [MemPool() for _ in range(5)]
    assert len({pool.id for pool in pools}) == 5
    assert all(first == 0 and second > 0 for first, second in (pool.id for pool in pools))
    assert (pools[0].device, pools[0].allocator) == (0, None)


def test_uses_are_counted():
    pool = MemPool()
    assert pool.use_count() == 1
    with use_mem_pool(pool):
        assert pool.use_count() == 2
        with use_mem_pool(pool):
            assert pool.use_count() == 3
    assert pool.use_count() == 1
    with pytest.raises(ZeroDivisionError), use_mem_pool(pool):
        raise ZeroDivisionError
    assert pool.use_count() == 1


def test_the_innermost_pool_counts():
    outer, inner = MemPool(), MemPool()
    with use_mem_pool(outer):
        a = empty(MIB)
        with use_mem_pool(inner):
            b = empty(MIB)
            with use_mem_pool(outer):
                c = empty(MIB)
        d = empty(MIB)
    assert [pool_of(x) for x in (a, b, c, d)] == [outer.id, inner.id, outer.id, outer.id]


def test_memory_freed_in_a_pool_is_reused_only_there():
    pool = MemPool()
    with use_mem_pool(pool):
        x = empty(MIB)
    address = x.data_ptr()
    del x
    outside = empty(MIB)
    with use_mem_pool(pool):
        inside = empty(MIB)
    assert inside.data_ptr() == address != outside.data_ptr()


def test_only_the_thread_that_uses_it_allocates_from_a_pool():
    pool, made = MemPool(), {}
    entered, done = threading.Event(), threading.Event()

    def other():
        entered.wait()
        made["other"] = empty(MIB)
        with use_mem_pool(second):
            made["second"] = empty(MIB)
            done.set()

    second = MemPool()
    thread = threading.Thread(target=other)
    thread.start()
    with use_mem_pool(pool):
        entered.set()
        done.wait()
        made["this"] = empty(MIB)
    thread.join()
    assert {name: pool_of(x) for name, x in made.items()} == {"other": (0, 0), "second": second.id, "this": pool.id}


def test_a_pool_is_used_on_the_current_device_or_another():
    pool = MemPool()
    with use_mem_pool(pool, 1):
        here, there = empty(MIB), empty(MIB, "openreg:1")
    assert (pool_of(here), pool_of(there)) == ((0, 0), pool.id)
    with torch.openreg.device(1):
        of_one = MemPool()
        with use_mem_pool(of_one):
            x = empty(MIB)
    assert (of_one.device, x.device.index, pool_of(x)) == (1, 1, of_one.id)
    for device in ("openreg:1", torch.device("openreg", 1)):
        with use_mem_pool(of_one, device):
            assert pool_of(empty(MIB, "openreg:1")) == of_one.id


def test_a_pool_that_goes_gives_its_unused_memory_back():
    pool = MemPool()
    with use_mem_pool(pool):
        x = empty(30 * MIB)
    name = pool.id
    del x
    assert reserved_by(name) == 30 * MIB
    torch.openreg.empty_cache()
    assert reserved_by(name) == 30 * MIB, "the cache of a pool that is alive stays"
    free = torch.openreg.mem_get_info()[0]
    del pool
    assert reserved_by(name) == 0
    assert torch.openreg.mem_get_info()[0] == free + 30 * MIB


def test_tensors_outlive_their_pool():
    pool = MemPool()
    name = pool.id
    with use_mem_pool(pool):
        x = torch.arange(MIB, device="openreg")  # 8 MiB
        y = empty(8 * MIB)
    del y, pool
    assert reserved_by(name) == 8 * MIB
    others = [empty(8 * MIB).fill_(7) for _ in range(4)]
    assert x.sum().item() == MIB * (MIB - 1) // 2
    del x
    torch.openreg.empty_cache()
    assert reserved_by(name) == 0
    assert len(others) == 4


def test_work_that_is_queued_on_a_pools_memory_is_done_before_it_goes(stream_at_work):
    pool = MemPool()
    with use_mem_pool(pool):
        x = torch.ones(MIB, device="openreg")
    torch.openreg.current_stream().wait_stream(stream_at_work)
    y = x + 1
    del x, pool
    assert y.sum().item() == 2 * MIB


def test_the_end_of_a_pool_leaves_failures_to_calls_that_wait_for_the_work():
    pool = MemPool()
    name = pool.id
    with use_mem_pool(pool):
        x = empty(4 * MIB)
    del x
    torch.nn.functional.embedding(torch.tensor([9], device="openreg"), torch.ones(3, 2, device="openreg"))
    del pool
    assert reserved_by(name) == 0
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        torch.openreg.synchronize()


def test_a_pool_may_go_while_it_is_used():
    pool = MemPool()
    name = pool.id
    with use_mem_pool(pool):
        del pool
        x = empty(4 * MIB)
        assert pool_of(x) == name
    del x
    gc.collect()
    torch.openreg.empty_cache()
    assert reserved_by(name) == 0


def test_figures_are_kept_for_each_pool():
    pool = MemPool()
    with use_mem_pool(pool):
        x, y = empty(3 * MIB), empty(1000)
    nested = torch.openreg.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][pool.id]
    of_all = {"current": 6 * MIB, "peak": 6 * MIB, "allocated": 6 * MIB, "freed": 0}
    assert nested["all"] == of_all
    assert (nested["small_pool"]["current"], nested["large_pool"]["current"]) == (2 * MIB, 4 * MIB)
    name = pool.id
    del x, y, pool
    nested = torch.openreg.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][name]
    assert nested["all"] == of_all | {"current": 0, "freed": 6 * MIB}
    torch.openreg.reset_peak_memory_stats()
    torch.openreg.reset_accumulated_memory_stats()
    nested = torch.openreg.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][name]
    assert nested["all"] == dict.fromkeys(of_all, 0)


def test_a_snapshot_of_a_pool_has_its_segments_only():
    first, second = MemPool(), MemPool()
    kept = [empty(MIB)]
    for pool, size in ((first, 3 * MIB), (second, 5 * MIB)):
        with use_mem_pool(pool):
            kept.append(empty(size))
    assert [segment["requested_size"] for segment in first.snapshot()] == [3 * MIB]
    assert [segment["segment_pool_id"] for segment in second.snapshot(include_traces=False)] == [second.id]
    assert torch.openreg.memory_snapshot(mempool_id=second.id) == second.snapshot()
    assert len(torch.openreg.memory_snapshot()) == len(torch.openreg.memory_snapshot((0, 0))) >= 3
    assert torch.openreg.memory_snapshot((0, 10**9)) == []
    assert len(kept) == 3


def pools_in_need():
    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="openreg")

    def fits(size):
        try:
            return empty(size).numel() == size
        except torch.OutOfMemoryError:
            return False

    helper, private = torch.openreg.MemPool(use_on_oom=True), torch.openreg.MemPool()
    for pool in (helper, private):
        with torch.openreg.use_mem_pool(pool):
            x = empty(20 * MIB)
        del x
    held = empty(24 * MIB)
    assert fits(20 * MIB)
    assert not fits(21 * MIB)
    x = empty(20 * MIB)
    assert not fits(20 * MIB), "the other pool is for itself"
    del x, private
    assert fits(20 * MIB)
    assert held.numel() == 24 * MIB


def test_a_pool_may_serve_others_when_memory_runs_out(run_alone):
    run_alone(pools_in_need, TORCH_OPENREG_MEMORY="64MiB")


def test_a_pool_that_does_not_split_has_a_segment_for_each_block():
    pool = MemPool(no_split=True)
    with use_mem_pool(pool):
        kept = [empty(1000), empty(1000), empty(3 * MIB)]
    segments = pool.snapshot()
    assert sorted(segment["total_size"] for segment in segments) == [2 * MIB, 2 * MIB, 4 * MIB]
    assert all(len(segment["blocks"]) == 1 for segment in segments)
    assert len(kept) == 3


def test_what_a_pool_cannot_be_is_refused():
    with pytest.raises(RuntimeError, match=r"there is no such memory pool \(got \(7, 7\)\)"):
        _C.release_pool(0, (7, 7))
    use = _C.begin_pool_use(0, MemPool().id)
    _C.end_pool_use(0, use)
    with pytest.raises(RuntimeError, match="this use of a memory pool has already ended"):
        _C.end_pool_use(0, use)


def a_pool_is_left_at_exit():
    global pool, x
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        x = torch.ones(3, device="openreg")
    print(x.sum().item())


def test_a_pool_may_live_until_the_process_ends(run_alone):
    assert run_alone(a_pool_is_left_at_exit) == "3.0\n"


def a_forked_child_drops_a_pool():
    import os

    pool = torch.openreg.MemPool()
    child = os.fork()
    if child == 0:
        del pool
        print("dropped", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.use_count() == 1


def test_a_forked_child_may_drop_a_pool(run_alone):
    assert run_alone(a_forked_child_drops_a_pool) == "dropped\n"
