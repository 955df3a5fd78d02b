"""The memory of graphs: their pools, pinned memory, running out, and debugging."""

from __future__ import annotations

import gc
import textwrap

import pytest
import torch

openreg = torch.openreg
MiB = 1 << 20


def capture(work, pool=None, stream=None) -> tuple:
    """A graph of `work`, and what it returned."""
    graph = openreg.CUDAGraph()
    with openreg.graph(graph, pool=pool, stream=stream):
        result = work()
    return graph, result


def reserved(pool: tuple[int, int]) -> int:
    return sum(segment["total_size"] for segment in openreg.memory_snapshot(pool))


@pytest.fixture(autouse=True)
def _empty_cache():
    gc.collect()
    openreg.synchronize()
    openreg.empty_cache()
    yield
    gc.collect()


def test_what_a_graph_computes_stays_its_own_between_replays():
    x = torch.arange(1000.0, device="openreg")

    def work() -> torch.Tensor:
        a = x + 1
        b = a * 2
        del a
        c = b - x
        del b
        return c.sqrt()

    graph, y = capture(work)
    for round in range(5):
        others = [torch.full((1000,), -1.0, device="openreg") for _ in range(20)]  # must not get what the graph uses
        x.fill_(float(round))
        graph.replay()
        more = [torch.full((1000,), -2.0, device="openreg") for _ in range(20)]
        assert torch.equal(y.cpu(), torch.full((1000,), (2.0 * (round + 1) - round) ** 0.5))
        assert all((o == -1.0).all().item() for o in others) and all((m == -2.0).all().item() for m in more)
        del others, more


def test_a_graphs_memory_is_counted_and_freed_with_it():
    x = torch.ones(MiB, device="openreg")
    openreg.synchronize()
    before = openreg.memory_reserved()
    allocated = openreg.memory_allocated()
    graph, y = capture(lambda: (x * 2) @ torch.ones(1, device="openreg").expand(MiB))
    assert openreg.memory_reserved() >= before + 4 * MiB
    assert reserved(graph.pool()) >= 4 * MiB
    openreg.empty_cache()
    assert reserved(graph.pool()) >= 4 * MiB
    graph.replay()
    assert y.item() == 2.0 * MiB
    pool = graph.pool()
    del graph, y
    openreg.empty_cache()
    assert reserved(pool) == 0
    assert openreg.memory_reserved() == before
    assert openreg.memory_allocated() == allocated


def test_results_outlive_the_graph():
    x = torch.arange(8.0, device="openreg")
    graph, y = capture(lambda: x + 1)
    graph.replay()
    del graph
    openreg.empty_cache()
    others = [torch.zeros(8, device="openreg") for _ in range(20)]
    assert y.tolist() == (x + 1).tolist()
    del others


def test_the_snapshot_has_the_pool_of_each_graph():
    x = torch.ones(MiB, device="openreg")
    graph, y = capture(lambda: x + 1)
    other, z = capture(lambda: x + 2)
    pools = {tuple(segment["segment_pool_id"]) for segment in openreg.memory_snapshot()}
    assert {tuple(graph.pool()), tuple(other.pool())} <= pools
    assert graph.pool() != other.pool()
    active = [b for s in openreg.memory_snapshot(graph.pool()) for b in s["blocks"] if b["state"].startswith("active")]
    assert sum(block["size"] for block in active) >= 4 * MiB
    del y, z


@pytest.mark.parametrize("how", ["handle", "of the first", "MemPool", "id of a MemPool"])
def test_graphs_that_share_a_pool_use_its_memory_again(how):
    x = torch.ones(MiB, device="openreg")
    mem_pool = openreg.MemPool()
    pool = {
        "handle": openreg.graph_pool_handle(),
        "of the first": None,
        "MemPool": mem_pool,
        "id of a MemPool": mem_pool.id,
    }[how]
    first, a = capture(lambda: ((x + 1) * 2).sum(), pool)
    size = reserved(first.pool())
    second, b = capture(lambda: ((x + 2) * 3).sum(), first.pool())
    assert tuple(first.pool()) == tuple(second.pool())
    assert first.pools() == [first.pool()]
    if "MemPool" in how:
        assert first.pool() == mem_pool.id
    assert reserved(first.pool()) == size  # temporaries of the second lie where those of the first did
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        first.replay()
        second.replay()
        assert (a.item(), b.item()) == (2 * (value + 1) * MiB, 3 * (value + 2) * MiB)
    shared = first.pool()
    del first, a
    openreg.empty_cache()
    second.replay()
    assert b.item() == 15.0 * MiB
    del second, b, mem_pool, pool
    openreg.empty_cache()
    assert reserved(shared) == 0


def test_memory_of_other_streams_that_take_part_comes_from_the_pool():
    x = torch.ones(MiB, device="openreg")
    side, graph = openreg.Stream(), openreg.CUDAGraph()
    with openreg.graph(graph):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            a = x + 1
        torch.accelerator.current_stream().wait_stream(side)
        b = a * 2
    assert reserved(graph.pool()) >= 8 * MiB
    graph.replay()
    assert b[0].item() == 4.0


def test_memory_for_work_outside_of_the_capture_does_not_come_from_the_pool():
    x, graph, other = torch.ones(8, device="openreg"), openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph, capture_error_mode="relaxed"):
        y = x + 1
        with other:
            outside = torch.zeros(4 * MiB, device="openreg")
    assert reserved(graph.pool()) < 16 * MiB
    del y, outside


def test_pinned_memory_in_a_graph():
    source = torch.zeros(1000, pin_memory=True)
    x = torch.empty(1000, device="openreg")
    result = torch.zeros(1000, pin_memory=True)

    def work() -> None:
        x.copy_(source, non_blocking=True)
        result.copy_(x * 2, non_blocking=True)

    graph, _ = capture(work)
    for value in (1.0, 2.0, 3.0):
        source.fill_(value)
        graph.replay()
        openreg.synchronize()
        assert result.tolist() == [2 * value] * 1000


def test_a_pinned_block_of_a_graph_is_not_given_to_others():
    x = torch.ones(5000, device="openreg")

    def work() -> torch.Tensor:
        return torch.empty(5000, pin_memory=True).copy_(x, non_blocking=True).to("openreg", non_blocking=True) + 1

    graph, y = capture(work)
    others = [torch.full((5000,), 7.0).pin_memory() for _ in range(10)]
    for value in (3.0, 4.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value + 1] * 5000
    assert all((other == 7.0).all().item() for other in others)


def run(run_python, code: str, **variables: str) -> str:
    return run_python("import torch\nopenreg = torch.openreg\n" + textwrap.dedent(code), **variables).stdout


def test_running_out_of_memory_in_a_capture(run_python):
    run(
        run_python,
        """
        x = torch.ones(1 << 20, device="openreg")
        graph, stream = openreg.CUDAGraph(), openreg.Stream()
        kept = []
        try:
            with openreg.graph(graph, stream=stream):
                for _ in range(100):
                    kept.append(x + 1)
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("no error")
        assert not stream.is_capturing() and len(kept) > 5
        kept.clear()
        graph.reset()
        openreg.empty_cache()
        with stream:
            assert (x + 1).sum().item() == 2 << 20
        with openreg.graph(graph, stream=stream):
            y = x + 1
        for value in (2.0, 3.0):
            x.fill_(value)
            graph.replay()
            assert y[0].item() == value + 1
        assert torch.full((8 << 20,), 1.0, device="openreg")[0].item() == 1.0
        """,
        TORCH_OPENREG_MEMORY="64MiB",
    )


def test_cached_memory_is_given_back_for_a_capture_that_needs_it(run_python):
    run(
        run_python,
        """
        x = torch.ones(1 << 20, device="openreg")
        openreg.synchronize()
        graph, stream = openreg.CUDAGraph(), openreg.Stream()
        with stream:
            graph.capture_begin(capture_error_mode="relaxed")
            y = x + 1
            with openreg.stream(openreg.default_stream()):
                cached = [torch.empty(1 << 20, device="openreg") for _ in range(12)]
                del cached
            z = [y + i for i in range(12)]
            graph.capture_end()
        graph.replay()
        assert z[11][0].item() == 13.0
        """,
        TORCH_OPENREG_MEMORY="64MiB",
    )


def test_debugging_memory_finds_nothing_in_a_training_step(run_python):
    run(
        run_python,
        """
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)).to("openreg")
        optimizer = torch.optim.Adam(model.parameters(), capturable=True)
        x = torch.ones(4, 8, device="openreg")

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        side = openreg.Stream()
        side.wait_stream(openreg.current_stream())
        with side:
            for _ in range(3):
                step()
        openreg.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True)
        graph = openreg.CUDAGraph()
        with openreg.graph(graph, check_input_liveness=True):
            loss = step()
        losses = []
        for _ in range(20):
            graph.replay()
            losses.append(loss.item())
        assert losses[-1] < losses[0], losses
        del graph, loss
        openreg.synchronize()
        openreg.empty_cache()
        """,
        TORCH_OPENREG_DEBUG_MEMORY="1",
    )


def test_debugging_memory_finds_inputs_that_have_been_freed(run_python):
    run(
        run_python,
        """
        x = torch.ones(4, device="openreg")
        graph = openreg.CUDAGraph()
        with openreg.graph(graph):
            temporary = x * 2
            y = temporary + 1
            del temporary
        graph.replay()
        assert y.tolist() == [3.0] * 4
        del x
        for _ in range(2):
            try:
                graph.replay()
            except RuntimeError as error:
                assert "aten::mul" in str(error) and "has been freed since it was captured" in str(error), error
            else:
                raise AssertionError("no error")
        openreg.synchronize()
        assert y.tolist() == [3.0] * 4
        """,
        TORCH_OPENREG_DEBUG_MEMORY="1",
    )


def test_the_liveness_of_inputs_needs_debugging_of_memory():
    with pytest.raises(RuntimeError, match="TORCH_OPENREG_DEBUG_MEMORY=1"):
        with openreg.graph(openreg.CUDAGraph(), check_input_liveness=True):
            pass
    assert not openreg.is_current_stream_capturing()


def test_many_graphs_leave_no_memory_behind():
    x = torch.ones(1000, device="openreg")
    capture(lambda: (x + 1).sum())[0].replay()
    gc.collect()
    openreg.empty_cache()
    before = openreg.memory_reserved(), openreg.memory_allocated()
    for i in range(50):
        graph, y = capture(lambda i=i: (x + i).sum() + torch.rand((), device="openreg") * 0)
        graph.replay()
        assert y.item() == 1000.0 * (i + 1)
    del graph, y
    openreg.empty_cache()
    assert (openreg.memory_reserved(), openreg.memory_allocated()) == before
