"""Programs in which every access is ordered, or touches memory of its own: the detector is silent.

All programs are given the current stream, `main`, and another one, `side`. What they return is read at the end, by the
host, after both streams have been waited for.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

DEVICE = "openreg"
Stream = torch.Stream
Program = Callable[[Stream, Stream], object]
PROGRAMS: list[Program] = []


def clean(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


def on(stream: Stream) -> torch.openreg.StreamContext:
    return torch.openreg.stream(stream)


def in_four_threads(work: Callable[[], None]) -> None:
    """At the same time. Raises what one of them raises."""
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4, initializer=start.wait) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()


# Orders


@clean
def waits_both_ways(main, side):
    x = torch.ones(8, 8, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        y = x * 2
        x.add_(1)
    main.wait_stream(side)
    return x + y


@clean
def event_between(main, side):
    x = torch.ones(8, device=DEVICE)
    event = main.record_event()
    with on(side):
        side.wait_event(event)
        y = x * 2
        done = side.record_event()
    done.wait(main)
    x.add_(y)
    return x


@clean
def event_recorded_again(main, side):
    x = torch.ones(8, device=DEVICE)
    event = torch.openreg.Event()
    for _ in range(3):
        x.add_(1)
        event.record(main)
    side.wait_event(event)
    with on(side):
        return x * 2


@clean
def order_through_a_third_stream(main, side):
    third = torch.openreg.Stream()
    x = torch.ones(8, device=DEVICE)
    third.wait_stream(main)
    side.wait_stream(third)
    with on(side):
        return x * 2


@clean
def later_wait_orders_all_before_it(main, side):
    x, y = torch.ones(8, device=DEVICE), torch.ones(8, device=DEVICE)
    x.add_(1)
    side.wait_stream(main)
    with on(side):
        x.mul_(2)
        y.mul_(3)
    return y


@clean
def host_waits_for_the_stream(main, side):
    x = torch.ones(8, device=DEVICE)
    main.synchronize()
    with on(side):
        return x * 2


@clean
def host_waits_for_the_device(main, side):
    x = torch.ones(8, device=DEVICE)
    torch.accelerator.synchronize()
    with on(side):
        return x * 2


@clean
def host_waits_for_an_event(main, side):
    x = torch.ones(8, device=DEVICE)
    main.record_event().synchronize()
    with on(side):
        return x * 2


@clean
def host_asks_until_it_is_done(main, side):
    x = torch.ones(8, device=DEVICE)
    event = main.record_event()
    while not event.query():
        pass
    with on(side):
        y = x * 2
    while not side.query():
        pass
    y.add_(1)
    return y


@clean
def item_waits(main, side):
    x = torch.ones(8, device=DEVICE)
    x.sum().item()
    with on(side):
        return x * 2


@clean
def host_reads_what_its_own_stream_wrote(main, side):
    x = torch.ones(8, device=DEVICE)
    return [x[0].item(), x.cpu(), x.tolist(), repr(x), torch.nonzero(x), x[x > 0]]


@clean
def reads_from_two_streams(main, side):
    x = torch.ones(8, device=DEVICE)
    side.wait_stream(main)
    y = x * 2
    with on(side):
        z = x * 3
    return y, z, x


# Memory that is used again


@clean
def record_stream(main, side):
    x = torch.ones(1000, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.add_(1)
    x.record_stream(side)
    del x
    return torch.zeros(1000, device=DEVICE)


@clean
def wait_before_the_memory_is_freed(main, side):
    x = torch.ones(1000, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.add_(1)
    main.wait_stream(side)
    del x
    return torch.zeros(1000, device=DEVICE)


@clean
def wait_before_the_memory_is_used_again(main, side):
    x = torch.ones(1000, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.add_(1)
    del x
    main.wait_stream(side)
    return torch.zeros(1000, device=DEVICE)


@clean
def memory_of_one_stream_used_again_there(main, side):
    for _ in range(4):
        x = torch.ones(1000, device=DEVICE)
        x.add_(1)
        del x
    return torch.zeros(1000, device=DEVICE)


@clean
def memory_returned_to_the_device(main, side):
    x = torch.ones(1 << 20, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.add_(1)
    x.record_stream(side)
    del x
    torch.openreg.empty_cache()
    with on(side):
        return torch.zeros(1 << 20, device=DEVICE)


# Views


@clean
def halves(main, side):
    x = torch.ones(64, 64, device=DEVICE)
    side.wait_stream(main)
    x[:32].mul_(2)
    with on(side):
        x[32:].mul_(3)
    return x


@clean
def interleaved_columns(main, side):
    x = torch.ones(64, 64, device=DEVICE)
    side.wait_stream(main)
    x[:, ::2].mul_(2)
    with on(side):
        x[:, 1::2].mul_(3)
    return x


@clean
def two_diagonals(main, side):
    x = torch.ones(8, 8, device=DEVICE)
    side.wait_stream(main)
    x.diagonal().zero_()
    with on(side):
        x.diagonal(1).mul_(2)
    return x


@clean
def windows_that_do_not_overlap(main, side):
    windows = torch.ones(20, device=DEVICE).unfold(0, 4, 4)
    side.wait_stream(main)
    windows[0::2].zero_()
    with on(side):
        windows[1::2].mul_(2)
    return windows


@clean
def channels_of_an_image(main, side):
    x = torch.ones(2, 3, 4, 4, device=DEVICE).contiguous(memory_format=torch.channels_last)
    side.wait_stream(main)
    x[:, 1].zero_()
    with on(side):
        x[:, 0].mul_(2)
        x[:, 2].mul_(2)
    return x


@clean
def quadrants_and_transposes(main, side):
    x = torch.ones(8, 8, device=DEVICE)
    side.wait_stream(main)
    x[:4, 4:].t().copy_(x[:4, 4:] + 1)
    with on(side):
        x.t()[:4, 4:].mul_(2)
    return x


@clean
def real_and_imaginary_part(main, side):
    x = torch.ones(8, device=DEVICE, dtype=torch.complex64)
    side.wait_stream(main)
    x.real.mul_(2)
    with on(side):
        x.imag.zero_()
    return x


@clean
def bytes_of_one_element(main, side):
    x = torch.ones(8, device=DEVICE)
    side.wait_stream(main)
    x.view(torch.int16)[0::2].zero_()
    with on(side):
        x.view(torch.int16)[1::2].zero_()
    return x


@clean
def parts_of_one_storage(main, side):
    q, k, v = torch.ones(4, 24, device=DEVICE).chunk(3, dim=1)
    side.wait_stream(main)
    q.mul_(2)
    with on(side):
        k.mul_(v)
    return q, k, v


@clean
def views_through_dlpack(main, side):
    x = torch.ones(16, device=DEVICE)
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x[8:]))
    side.wait_stream(main)
    x[:8].mul_(2)
    with on(side):
        y.mul_(3)
    return x


@clean
def rows_that_depend_on_values(main, side):
    x = torch.zeros(16, 4, device=DEVICE)
    even, odd = torch.arange(0, 16, 2, device=DEVICE), torch.arange(1, 16, 2, device=DEVICE)
    side.wait_stream(main)
    x[even] = torch.ones(8, 4, device=DEVICE)
    with on(side):
        x[odd] = torch.ones(8, 4, device=DEVICE)
    return x


@clean
def no_elements(main, side):
    x = torch.ones(8, device=DEVICE)
    side.wait_stream(main)
    x[:0].zero_()
    x.zero_()
    with on(side):
        return x[8:] * 2


# Operators of other kinds


@clean
def random_numbers_on_two_streams(main, side):
    x = torch.randn(64, device=DEVICE)
    with on(side):
        y = torch.nn.functional.dropout(torch.rand(64, device=DEVICE), 0.5)
    return x, y, torch.randperm(16, device=DEVICE), torch.bernoulli(torch.full((8,), 0.5, device=DEVICE))


@clean
def lists_of_tensors(main, side):
    parts = [torch.ones(4, device=DEVICE) for _ in range(4)]
    side.wait_stream(main)
    torch._foreach_add_(parts[:2], 1.0)
    with on(side):
        torch._foreach_mul_(parts[2:], 2.0)
    main.wait_stream(side)
    return torch.cat(parts), torch.stack(parts)


def optimizer_step(main, side, **options):
    layer = torch.nn.Linear(4, 4, device=DEVICE)
    optimizer = torch.optim.AdamW(layer.parameters(), **options)
    for _ in range(3):
        layer(torch.ones(2, 4, device=DEVICE)).sum().backward()
        side.wait_stream(main)
        with on(side):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        main.wait_stream(side)
    return list(layer.parameters())


@clean
def optimizer(main, side):
    return optimizer_step(main, side, foreach=False)


@clean
def foreach_optimizer(main, side):
    return optimizer_step(main, side, foreach=True)


@clean
def fused_optimizer(main, side):
    return optimizer_step(main, side, fused=True)


@clean
def sparse(main, side):
    x = torch.eye(4, device=DEVICE).to_sparse()
    side.wait_stream(main)
    with on(side):
        x._values().mul_(2)
    main.wait_stream(side)
    return x.to_dense(), x @ torch.ones(4, 4, device=DEVICE), x.to_sparse_csr().values()


@clean
def indices_while_values_are_written(main, side):
    x = torch.eye(4, device=DEVICE).to_sparse()
    side.wait_stream(main)
    with on(side):
        x._values().mul_(2)
    return x._indices() + 1


@clean
def nested(main, side):
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(rows, device=DEVICE, layout=torch.jagged)
    side.wait_stream(main)
    with on(side):
        doubled = jagged * 2
    main.wait_stream(side)
    return (doubled + jagged).values()


@clean
def quantized(main, side):
    x = torch.quantize_per_tensor(torch.ones(4, 4, device=DEVICE), 0.1, 0, torch.qint8)
    with on(side):
        y = x.dequantize()
    main.wait_stream(side)
    return y, x.int_repr()


@clean
def networks(main, side):
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4)
    ).to(DEVICE)
    other = copy.deepcopy(layers)
    x = torch.ones(2, 3, 8, 8, device=DEVICE)
    side.wait_stream(main)
    layers(x).square().mean().backward()
    with on(side):
        other(x).square().mean().backward()
    return [p.grad for p in layers.parameters()], [p.grad for p in other.parameters()]


@clean
def autograd_orders_the_backward_pass(main, side):
    w = torch.ones(4, device=DEVICE, requires_grad=True)
    side.wait_stream(main)
    with on(side):
        y = (w * w).sum()
    main.wait_stream(side)
    (y * 2).backward()
    w.grad.add_(1)
    return w.grad


@clean
def checkpointed_layers(main, side):
    w = torch.ones(4, 4, device=DEVICE, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: F.gelu(x @ w), torch.ones(2, 4, device=DEVICE), use_reentrant=False)
    y.sum().backward()
    return w.grad


@clean
def custom_operator(main, side):
    @torch.library.custom_op("openreg_races::scale_rows", mutates_args={"y"})
    def scale_rows(x: torch.Tensor, y: torch.Tensor) -> None:
        y.mul_(x)

    x, y = torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        scale_rows(x, y)
    scaled = x * 2  # x is only read
    main.wait_stream(side)
    return scaled, y


# Copies


@clean
def copies_of_pinned_memory(main, side):
    pinned = torch.ones(16).pin_memory()
    side.wait_stream(main)
    with on(side):
        x = pinned.to(DEVICE, non_blocking=True)
    main.wait_stream(side)
    back = (x + 1).to("cpu", non_blocking=True)
    main.synchronize()
    return back.add_(1)


@clean
def pinned_memory_used_again(main, side):
    pinned = torch.ones(16).pin_memory()
    results = []
    for step in range(4):
        x = pinned.to(DEVICE, non_blocking=True)
        main.record_event().synchronize()
        pinned.fill_(step)
        results.append(x)
    return results


@clean
def between_devices(main, side):
    x = torch.ones(16, device="openreg:0")
    y = x.to("openreg:1")
    y.add_(1)
    x.add_(1)
    return x, y.to("openreg:0"), y


@clean
def loader_with_pinned_memory(main, side):
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))
    totals = []
    for (rows,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        with on(side):
            x = rows.to(DEVICE, non_blocking=True)
        main.wait_stream(side)
        x.record_stream(main)
        totals.append(x.sum())
    return totals


# Threads


@clean
def one_graph_on_two_streams(main, side):
    """Runs of one graph follow each other, whatever their streams; only the first one needs a wait."""
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = x * 2
    side.wait_stream(main)
    with on(side):
        graph.replay()
    graph.replay()
    return y


@clean
def thread_that_waits_and_passes_on(main, side):
    done: queue.Queue[torch.Tensor] = queue.Queue()

    def produce():
        with on(torch.openreg.Stream()) as stream:
            for step in range(4):
                x = torch.full((8,), float(step), device=DEVICE)
                torch.openreg.current_stream().synchronize()
                done.put(x)
            del stream

    thread = threading.Thread(target=produce)
    thread.start()
    received = [done.get() for _ in range(4)]  # kept: the producer's stream would reuse their memory
    results = [x * 2 for x in received]
    thread.join()
    return received, results


@clean
def thread_that_passes_an_event(main, side):
    done: queue.Queue[tuple[torch.Tensor, torch.Event]] = queue.Queue()

    def produce():
        with on(side):
            for step in range(4):
                x = torch.full((8,), float(step), device=DEVICE)
                done.put((x, side.record_event()))

    thread = threading.Thread(target=produce)
    thread.start()
    results = []
    for _ in range(4):
        x, event = done.get()
        main.wait_event(event)
        results.append(x * 2)
        x.record_stream(main)
    thread.join()
    return results


@clean
def threads_on_one_stream(main, side):
    x = torch.zeros(64, device=DEVICE)

    def run():
        for _ in range(5000):
            x.add_(1)

    in_four_threads(run)
    assert x.tolist() == [20000.0] * 64
    return x


@clean
def thread_whose_result_is_waited_for_here(main, side):
    result = []

    def produce():
        with on(side):
            result.append(torch.ones(8, device=DEVICE) * 2)

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    side.synchronize()
    return result[0] + 1


# Graphs


@clean
def graph_replayed_between_refills(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = (x * 2).sum()
    for step in range(4):
        x.fill_(step)
        graph.replay()
    return y


@clean
def graph_with_branches(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        capturing = torch.openreg.current_stream()
        y = x * 2
        side.wait_stream(capturing)
        with on(side):
            z = y + 1
        y2 = y + 2
        capturing.wait_stream(side)
        total = z + y2
    graph.replay()
    graph.replay()
    return total


@clean
def graphs_of_one_pool_in_turn(main, side):
    x = torch.ones(64, device=DEVICE)
    first, second = torch.openreg.CUDAGraph(), torch.openreg.CUDAGraph()
    with torch.openreg.graph(first):
        y = (x * 2).sum()
    with torch.openreg.graph(second, pool=first.pool()):
        z = (y * 3).sum()
    first.replay()
    side.wait_stream(main)
    with on(side):
        second.replay()
    main.wait_stream(side)
    first.replay()
    return y, z


@clean
def graph_on_another_stream(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = x * 2
    for step in range(3):
        x.fill_(step)
        side.wait_stream(main)
        with on(side):
            graph.replay()
        main.wait_stream(side)
    return y + 1


@clean
def graph_replayed_by_several_threads(main, side):
    x = torch.zeros(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        x.add_(1)
    main.synchronize()

    def run():
        with on(torch.openreg.Stream()):
            for _ in range(5000):
                graph.replay()
            torch.openreg.current_stream().synchronize()

    in_four_threads(run)
    assert x.tolist() == [20000.0] * 64
    return x


@clean
def graphed_layers(main, side):
    layer = torch.nn.Linear(4, 4, device=DEVICE)
    example = torch.ones(2, 4, device=DEVICE, requires_grad=True)
    graphed = torch.openreg.make_graphed_callables(layer, (example,))
    for _ in range(3):
        graphed(torch.ones(2, 4, device=DEVICE, requires_grad=True)).sum().backward()
    return layer.weight.grad


# Commands that use some elements, which may be others


@clean
def source_of_scatter_and_its_other_elements(main, side):
    source, index = torch.zeros(64, device=DEVICE), torch.arange(4, device=DEVICE)
    mask = index % 2 == 0
    side.wait_stream(main)
    source[4:].fill_(1)
    with on(side):
        target = torch.zeros(4, device=DEVICE)
        target.scatter_(0, index, source)
        target.scatter_add_(0, index, source)
        target.masked_scatter_(mask, source)
    return target, source


@clean
def loss_of_some_classes_and_the_others(main, side):
    scores, target = torch.zeros(4, 8, device=DEVICE), torch.arange(4, device=DEVICE)
    side.wait_stream(main)
    scores[:, 4:].fill_(1)
    with on(side):
        return F.nll_loss(scores, target), scores


@clean
def rows_by_index_and_other_rows(main, side):
    cache = torch.zeros(2, 16, 4, device=DEVICE)
    position = torch.tensor([9], device=DEVICE)
    step = torch.ones(2, 1, 4, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        cache.index_copy_(1, position, step)
    earlier = cache[:, :9].sum()
    main.wait_stream(side)
    return earlier, cache


@clean
def elements_by_put_and_by_mask(main, side):
    x, y = torch.zeros(8, device=DEVICE), torch.ones(8, device=DEVICE)
    index = torch.tensor([6, 7], device=DEVICE)
    low = torch.arange(8, device=DEVICE) < 4
    side.wait_stream(main)
    with on(side):
        x.put_(index, torch.ones(2, device=DEVICE))
        y[index] = 0
    x.masked_fill_(low, 2)
    found = y.masked_select(low)  # waits
    main.wait_stream(side)
    return x, y, found


@clean
def gradients_beside_a_fused_optimizer(main, side):
    layer = torch.nn.Linear(4, 4, device=DEVICE)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(torch.ones(2, 4, device=DEVICE)).sum().backward()
    side.wait_stream(main)
    optimizer.step()
    with on(side):
        norm = layer.weight.grad.norm()
    main.wait_stream(side)
    return norm


# The detector is switched on later than that


@clean
def tensors_that_are_older_than_the_detector(main, side):
    torch.openreg.set_race_detection_mode("off")
    recorded_before = torch.ones(1000, device=DEVICE)
    recorded_before.record_stream(side)
    recorded_after = torch.ones(1000, device=DEVICE)
    torch.openreg.set_race_detection_mode("error")
    recorded_after.record_stream(side)
    with on(side):
        y = recorded_before * recorded_after
    left = {recorded_before.data_ptr(), recorded_after.data_ptr()}
    del recorded_before, recorded_after
    later = []
    while left:  # until the allocator has seen that `side` does not use it any more
        later.append(torch.zeros(1000, device=DEVICE))
        begin, end = later[-1].data_ptr(), later[-1].data_ptr() + later[-1].nbytes
        left = {address for address in left if not begin <= address < end}
    return y


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_detector_is_silent(program):
    main, side = torch.openreg.current_stream(), torch.openreg.Stream()
    torch.accelerator.synchronize()
    results = program(main, side)
    side.synchronize()
    main.synchronize()
    repr(results)  # reads all elements
