"""Programs that lack an order between two accesses: the report names both, the memory, and what would order them.

Comments mark the lines that the report has to name: the first and the second access, the allocation of the memory
(`block`), and where it was freed. All programs are given the current stream, `main`, and another one, `side`.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from reports import Access, marked, parse

DEVICE = "openreg"
Stream = torch.Stream
Program = Callable[[Stream, Stream], object]

AFTER = r"after (?:the backward pass of \w+, called by )?\S+:{line1}"
WAIT = rf"Let {{second}} wait for {{first}} {AFTER} .* and before \S+:{{line2}} .*wait_stream\(\)"
EARLIER = r"The event of {first} for which {second} has waited was recorded before \S+:{line1} "
HOST = r"Before the host uses the memory, call synchronize\(\) of {first}, or of an event .* after \S+:{line1} "
OF_OWNER = (
    r"belonged to another tensor, which was freed by \S+:{freed} [^.]*\. stream \d+ of openreg:0, which allocated it, "
    r"has waited for {first}, and {second} has not\. Let {second} wait for "
)
REUSE = r"belonged to another tensor, which was freed by \S+:{freed} .*while {first} still used it.*record_stream\(\)"


@dataclass
class Race:
    """What a program has to lead to. An access is an operator, "wrote", "reads"..., and the name of its argument."""

    program: Program
    first: str
    second: str
    streams: str = "main side"
    element: str = "0"
    suggested_fix: str = WAIT
    sizes: tuple[int, int] | None = None  # numbers of elements


RACES: list[Race] = []


def race(first: str, second: str, streams: str = "main side", **more: object) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        RACES.append(Race(program, first, second, streams, **more))
        return program

    return add


def on(stream: Stream) -> torch.openreg.StreamContext:
    return torch.openreg.stream(stream)


# Waits that are missing, or that come too early


@race("aten::fill_.Scalar wrote self", "aten::mul.Tensor reads self", element="0, 0", sizes=(64, 64))
def missing_wait(main, side):
    x = torch.ones(8, 8, device=DEVICE)  # first, block
    with on(side):
        x * 2  # second


@race("aten::fill_.Scalar wrote self", "aten::copy_ reads src", suggested_fix=EARLIER)
def copy_of_much_to_pinned_memory(main, side):
    x = torch.zeros(3 << 20, device=DEVICE)  # block
    host = torch.zeros(3 << 20, pin_memory=True)
    side.wait_stream(main)
    x.fill_(1)  # first
    with on(side):
        host.copy_(x, non_blocking=True)  # second


@race("aten::sum.dim_IntList read self", "aten::zero_ writes self", "side main", element="0, 0")
def written_while_it_is_read(main, side):
    x = torch.ones(8, 8, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.sum()  # first
    x.zero_()  # second


@race("aten::normal_ wrote self", "aten::uniform_ writes self", "side main")
def two_writes(main, side):
    x = torch.empty(16, device=DEVICE)  # block
    with on(side):
        x.normal_()  # first
    x.uniform_()  # second


@race("aten::fill_.Scalar wrote self", "aten::add.Tensor reads self")
def wait_in_the_wrong_direction(main, side):
    x = torch.ones(4, device=DEVICE)  # first, block
    main.wait_stream(side)
    with on(side):
        x + 1  # second


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self", suggested_fix=EARLIER)
def event_recorded_too_early(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    event = main.record_event()
    x.add_(1)  # first
    side.wait_event(event)
    with on(side):
        x * 2  # second


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self")
def event_of_another_stream(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    x.add_(1)  # first
    side.wait_event(torch.openreg.Stream().record_event())
    with on(side):
        x * 2  # second


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self", suggested_fix=EARLIER)
def wait_before_the_write(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    x.add_(1)  # first
    with on(side):
        x * 2  # second


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self")
def event_that_was_not_waited_for(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    torch.openreg.synchronize()
    x.add_(1)  # first
    main.record_event()
    with on(side):
        x * 2  # second


@race("aten::add_.Tensor wrote self", "aten::sub.Tensor reads other")
def result_of_another_stream(main, side):
    x = torch.ones(4, device=DEVICE)
    y = torch.zeros(4, device=DEVICE)  # block
    torch.openreg.synchronize()
    y.add_(1)  # first
    with on(side):
        x - y  # second


# The host


@race("aten::mul_.Tensor wrote self", "aten::_local_scalar_dense reads self", "side host", suggested_fix=HOST)
def item(main, side):
    x = torch.ones(64, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.mul_(2)  # first
    x[5].item()  # second


@race("aten::exp wrote the result", "aten::nonzero reads self", "side host", suggested_fix=HOST)
def result_whose_size_depends_on_elements(main, side):
    x = torch.ones(64, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        y = torch.exp(x)  # first, block
    torch.nonzero(y)  # second


@race("aten::add.Tensor read self", "aten::copy_ writes self", "side host", suggested_fix=HOST)
def copy_from_pageable_memory(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x + 1  # first
    x.copy_(torch.zeros(4))  # second


# Memory that is used again


@race("aten::add_.Tensor wrote self", "aten::fill_.Scalar writes self", "side main", suggested_fix=REUSE)
def early_reuse(main, side):
    x = torch.ones(1000, device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.add_(1)  # first
    del x  # freed
    y = torch.empty(1000, device=DEVICE)  # block
    y.fill_(3)  # second


@race("aten::mul.Tensor read self", "aten::zero_ writes self", suggested_fix=REUSE)
def early_reuse_of_memory_of_the_other_stream(main, side):
    with on(side):
        x = torch.ones(1000, device=DEVICE)
    main.wait_stream(side)
    x * 2  # first
    del x  # freed
    with on(side):
        torch.zeros(1000, device=DEVICE)  # block, second


@race("aten::add_.Tensor wrote self", "aten::fill_.Scalar writes self", suggested_fix=OF_OWNER)
def reuse_by_a_stream_that_has_not_waited_for_the_owner(main, side):
    owner = torch.openreg.Stream()
    with on(owner):
        x = torch.ones(1000, device=DEVICE)
        main.wait_stream(owner)
    x.add_(1)  # first
    owner.wait_stream(main)
    with on(owner):
        del x  # freed
        y = torch.empty(1000, device=DEVICE)  # block
    with on(side):
        y.fill_(3)  # second


@race("aten::mul.Tensor read self", "aten::add.Tensor writes the result", "side main", suggested_fix=REUSE)
def early_reuse_of_a_part(main, side):
    other = torch.ones(100, device=DEVICE)
    with torch.openreg.use_mem_pool(torch.openreg.MemPool()):
        x = torch.ones(100_000, device=DEVICE)
        side.wait_stream(main)
        with on(side):
            y = x * 2  # first
        del x  # freed
        z = other + 1  # second, block
    return y, z


# Graphs


@race("aten::mul.Tensor read self", "aten::fill_.Scalar writes self")
def static_input_refilled_on_another_stream(main, side):
    x = torch.ones(64, device=DEVICE)  # block
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = x * 2  # first captured
    graph.replay()  # first
    with on(side):
        x.fill_(3)  # second
    return y


@race("aten::mul.Tensor wrote the result", "aten::_local_scalar_dense reads self", "side host", suggested_fix=HOST)
def output_of_a_graph_read_too_early(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = x * 2  # first captured, block
    side.wait_stream(main)
    with on(side):
        graph.replay()  # first
    y[0].item()  # second


@race("aten::mul.Tensor wrote the result", "aten::mul.Tensor writes the result")
def two_graphs_of_one_pool(main, side):
    x = torch.ones(64, device=DEVICE)
    first, second = torch.openreg.CUDAGraph(), torch.openreg.CUDAGraph()
    with torch.openreg.graph(first):
        y = (x * 2).sum()  # first captured
    del y
    with torch.openreg.graph(second, pool=first.pool()):
        z = (x * 3).sum()  # second captured
    side.wait_stream(main)
    first.replay()  # first
    with on(side):
        second.replay()  # second
    return z


@race("aten::mul.Tensor wrote the result", "aten::add.Tensor reads self", "capture side")
def branches_of_a_capture(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        capturing = torch.openreg.current_stream()
        side.wait_stream(capturing)
        y = x * 2  # first, block
        with on(side):
            try:
                y + 1  # second
            finally:
                capturing.wait_stream(side)


@race(
    "aten::add.Tensor read self",
    "aten::mul.Tensor writes the result",
    "side capture",
    suggested_fix=r"belonged to another tensor, which was freed by \S+:{freed} .*record_stream\(\)",
)
def memory_of_a_capture_that_is_reused_too_early(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        capturing = torch.openreg.current_stream()
        y = x * 2
        side.wait_stream(capturing)
        with on(side):
            y + 1  # first
        del y  # freed
        try:
            x * 3  # second, block
        finally:
            capturing.wait_stream(side)


@race("aten::mul.Tensor wrote the result", "aten::add.Tensor reads self", "capture side")
def branches_of_a_capture_that_sleep(main, side):
    x = torch.ones(64, device=DEVICE)
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        capturing = torch.openreg.current_stream()
        side.wait_stream(capturing)
        y = x * 2  # first, block
        with on(side):
            torch.openreg._sleep(1)
            try:
                y + 1  # second
            finally:
                capturing.wait_stream(side)


# Commands that use some elements


@race("aten::_index_put_impl_ wrote self", "aten::sum.dim_IntList reads self", element="0, 0")
def rows_that_are_written_by_index(main, side):
    x = torch.zeros(8, 4, device=DEVICE)  # block
    rows = torch.tensor([1, 2], device=DEVICE)
    side.synchronize()
    x[rows] = torch.ones(2, 4, device=DEVICE)  # first
    with on(side):
        x.sum()  # second


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self", suggested_fix=EARLIER)
def one_of_many_rows(main, side):
    x = torch.zeros(2000, 4, device=DEVICE)  # block
    side.wait_stream(main)
    for row in x:
        row.add_(1)  # first
    with on(side):
        x[0] * 2  # second


# Views: the first element in common


@race(
    "aten::mul_.Tensor wrote self",
    "aten::mul_.Tensor writes self",
    element="0, 0",
    sizes=(2048, 1342),
    suggested_fix=EARLIER,
)
def columns_that_meet(main, side):
    x = torch.ones(64, 64, device=DEVICE)  # block
    side.wait_stream(main)
    x[:, ::2].mul_(2)  # first
    with on(side):
        x[3:, ::3].mul_(3)  # second


@race("aten::zero_ wrote self", "aten::mul_.Tensor writes self", element="3", sizes=(8, 8), suggested_fix=EARLIER)
def diagonal_and_row(main, side):
    x = torch.ones(8, 8, device=DEVICE)  # block
    side.wait_stream(main)
    x.diagonal().zero_()  # first
    with on(side):
        x[3].mul_(2)  # second


@race("aten::zero_ wrote self", "aten::mul_.Tensor writes self", element="0", sizes=(4, 4), suggested_fix=EARLIER)
def windows_that_overlap(main, side):
    windows = torch.ones(20, device=DEVICE).unfold(0, 4, 3)  # block
    side.wait_stream(main)
    windows[0].zero_()  # first
    with on(side):
        windows[1].mul_(2)  # second


@race(
    "aten::zero_ wrote self", "aten::mul_.Tensor writes self", element="1, 0, 0", sizes=(32, 48), suggested_fix=EARLIER
)
def channel_and_image(main, side):
    x = torch.ones(2, 3, 4, 4, device=DEVICE).contiguous(memory_format=torch.channels_last)  # block
    side.wait_stream(main)
    x[:, 1].zero_()  # first
    with on(side):
        x[1].mul_(2)  # second


@race("aten::sum.dim_IntList read self", "aten::zero_ writes self", "side main", sizes=(4, 1))
def expanded(main, side):
    x = torch.ones(4, 1, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.expand(4, 8).sum()  # first
    x[2].zero_()  # second


@race("aten::zero_ wrote self", "aten::mul_.Tensor writes self", "side main", element="0", sizes=(4, 3))
def another_dtype(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.view(torch.int16)[1::2].zero_()  # first
    x[1:].mul_(2)  # second


@race("aten::zero_ wrote self", "aten::mul_.Tensor writes self", "side main", sizes=(4, 4))
def imaginary_part(main, side):
    x = torch.ones(4, device=DEVICE, dtype=torch.complex64)  # block
    side.wait_stream(main)
    with on(side):
        x.imag.zero_()  # first
    x.mul_(2)  # second


@race("aten::mul_.Tensor wrote self", "aten::add.Tensor reads self", "side main")
def tensor_through_dlpack(main, side):
    x = torch.ones(16, device=DEVICE)  # block
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    side.wait_stream(main)
    with on(side):
        y.mul_(2)  # first
    x + 1  # second


# Operators of other kinds


@race("aten::scatter_.value wrote self", "aten::mul.Tensor reads self", "side main")
def scattered_and_read(main, side):
    x = torch.zeros(16, device=DEVICE)  # block
    index = torch.tensor([1, 2], device=DEVICE)
    side.wait_stream(main)
    with on(side):
        x.scatter_(0, index, 1.0)  # first
    x * 2  # second


@race("aten::index_select read self", "aten::zero_ writes self", "side main", element="0, 0", sizes=(40, 40))
def embedding_changed_while_it_is_read(main, side):
    layer = torch.nn.Embedding(10, 4, device=DEVICE)  # block
    words = torch.tensor([1, 2], device=DEVICE)
    side.wait_stream(main)
    with on(side):
        layer(words)  # first
    with torch.no_grad():
        layer.weight.zero_()  # second


@race("aten::native_batch_norm wrote running_mean", "aten::zero_ writes self", suggested_fix=EARLIER)
def running_statistics(main, side):
    layer = torch.nn.BatchNorm1d(4, device=DEVICE)  # block
    x = torch.ones(3, 4, device=DEVICE)
    side.wait_stream(main)
    layer(x)  # first
    with on(side):
        layer.running_mean.zero_()  # second


@race("aten::zero_ wrote self", "aten::addcmul_ reads tensor2", "side main")
def third_argument(main, side):
    x, a = torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE)
    b = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        b.zero_()  # first
    x.addcmul_(a, b)  # second


@race("aten::addcdiv_ wrote self", "aten::addmm reads mat2", "side main", element="0, 0")
def optimizer_on_another_stream(main, side):
    layer = torch.nn.Linear(4, 4, bias=False, device=DEVICE)  # block
    optimizer = torch.optim.Adam(layer.parameters(), foreach=False)
    x = torch.ones(2, 4, device=DEVICE)
    layer(x).sum().backward()
    side.wait_stream(main)
    with on(side):
        optimizer.step()  # first
    torch.addmm(torch.zeros(4, device=DEVICE), x, layer.weight.detach())  # second


@race("aten::mul_.Tensor wrote self", "aten::_to_dense reads self", "side host", suggested_fix=HOST)
def values_of_a_sparse_tensor(main, side):
    x = torch.eye(4, device=DEVICE).to_sparse()  # block
    side.wait_stream(main)
    with on(side):
        x._values().mul_(2)  # first
    x.to_dense()  # second


@race("aten::mul_.Tensor wrote self", "aten::mul.Tensor reads self", "side main", element="0, 0", sizes=(18, 18))
def values_of_a_nested_tensor(main, side):
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=DEVICE, layout=torch.jagged)
    side.wait_stream(main)
    with on(side):
        x.values().mul_(2)  # first
    x * 2  # second


@race("aten::zero_ wrote self", "aten::quantize_per_tensor reads self", "side host", suggested_fix=HOST, element="0")
def quantized_too_early(main, side):
    x = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.zero_()  # first
    torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)  # second


@race("aten::mul_.Tensor wrote self", "aten::add.Tensor reads self", suggested_fix=EARLIER)
def dropout_in_place(main, side):
    x = torch.ones(16, device=DEVICE)  # block
    side.wait_stream(main)
    torch.nn.functional.dropout(x, 0.5, inplace=True)  # first
    with on(side):
        x + 1  # second


@race("aten::add_.Tensor wrote self", "aten::mul_.Tensor writes self")
def gradient(main, side):
    w = torch.ones(4, device=DEVICE, requires_grad=True)
    (w * w).sum().backward()  # first, block
    with on(side):
        w.grad.mul_(2)  # second


@race("aten::sum.dim_IntList wrote the result", "aten::mul.Tensor reads self", "side main")
def forward_on_another_stream(main, side):
    w = torch.ones(4, device=DEVICE, requires_grad=True)
    side.wait_stream(main)
    with on(side):
        loss = (w * w).sum()  # first, block
    (loss * 2).backward()  # second


# Copies


@race("aten::copy_ wrote self", "aten::add.Tensor reads self", "side main")
def copy_from_pinned_memory(main, side):
    x = torch.ones(16).pin_memory()
    y = torch.empty(16, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        y.copy_(x, non_blocking=True)  # first
    y + 1  # second


@race("aten::copy_ read src", "aten::zero_ writes self", "side main")
def copy_to_pinned_memory(main, side):
    x = torch.ones(16, device=DEVICE)  # block
    side.wait_stream(main)
    with on(side):
        x.to("cpu", non_blocking=True)  # first
    x.zero_()  # second


@race("aten::copy_ wrote self", "aten::copy_ reads src", "side main")
def through_pinned_memory(main, side):
    x, y = torch.ones(16, device=DEVICE), torch.empty(16, device=DEVICE)
    pinned = torch.empty(16, pin_memory=True)
    side.wait_stream(main)
    with on(side):
        pinned.copy_(x, non_blocking=True)  # first
    y.copy_(pinned, non_blocking=True)  # second


@race("aten::copy_ wrote self", "aten::add.Tensor reads self", "main other")
def copy_to_another_device(main, side):
    x = torch.ones(16, device="openreg:0")
    y = x.to("openreg:1")  # first, block
    with on(torch.openreg.Stream(device=1)):
        y + 1  # second


@race("aten::copy_ read src", "aten::zero_ writes self", suggested_fix=EARLIER)
def source_of_a_copy_to_another_device(main, side):
    x = torch.ones(16, device="openreg:0")  # block
    side.wait_stream(main)
    y = x.to("openreg:1")  # first
    with on(side):
        x.zero_()  # second
    return y


@race("aten::copy_ wrote self", "aten::sum.dim_IntList reads self", "side main", element="0, 0")
def batch_of_a_loader(main, side):
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))
    for (rows,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        with on(side):
            x = rows.to(DEVICE, non_blocking=True)  # first, block
        x.sum()  # second


# Threads, and code of others


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self")
def another_thread(main, side):
    work: queue.Queue[torch.Tensor] = queue.Queue()
    errors = []

    def consume():
        with on(side):
            try:
                work.get() * 2  # second
            except torch.openreg.UnsynchronizedAccessError as error:
                errors.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    x = torch.ones(4, device=DEVICE)  # block
    torch.openreg.synchronize()
    x.add_(1)  # first
    work.put(x)  # the order of the threads does not order the streams
    thread.join()
    raise errors[0]


@race("aten::add_.Tensor wrote self", "aten::mul.Tensor reads self", suggested_fix=EARLIER)
def custom_operator(main, side):
    @torch.library.custom_op("openreg_races::add_scaled", mutates_args={"y"})
    def add_scaled(x: torch.Tensor, y: torch.Tensor, factor: float) -> None:
        y.add_(x * factor)  # first

    x = torch.ones(4, device=DEVICE)
    y = torch.ones(4, device=DEVICE)  # block
    side.wait_stream(main)
    add_scaled(x, y, 2.0)
    with on(side):
        y * 2  # second


def name_of(access: Access, streams: dict[tuple[int, int], str]) -> str:
    return streams.get(access.stream, "other") if access.stream else "host"


def words(access: Access) -> str:
    return f"{access.op} {access.verb} {access.argument}"


def described(access: Access) -> str:
    return f"stream {access.stream[1]} of openreg:{access.stream[0]}" if access.stream else "the host"


@pytest.mark.parametrize("case", RACES, ids=lambda case: case.program.__name__)
def test_the_report_names_both_accesses(case):
    main, side = torch.openreg.current_stream(), torch.openreg.Stream()
    torch.accelerator.synchronize()
    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        case.program(main, side)
    report = parse(str(caught.value))

    assert [words(report.first), words(report.second)] == [case.first, case.second]
    for access, mark in ((report.first, "first"), (report.second, "second")):
        line = marked(case.program, mark)
        if line is not None:
            assert (access.file, access.line) == (__file__, line)
        assert access.captured == marked(case.program, f"{mark} captured")
    streams = {(0, main.stream_id): "main", (0, side.stream_id): "side"}
    expected = case.streams.replace("capture", "other").split()
    assert [name_of(report.first, streams), name_of(report.second, streams)] == expected
    assert report.element == case.element
    if case.sizes is not None:
        assert (report.first.elements, report.second.elements) == case.sizes
    block = marked(case.program, "block")
    if block is not None:
        assert report.allocated == block
    lines = {"line1": report.first.line, "line2": report.second.line, "freed": marked(case.program, "freed")}
    parts = {"first": described(report.first), "second": described(report.second)}
    assert re.search(case.suggested_fix.format(**parts, **lines), report.suggested_fix, re.S), report.suggested_fix


def test_a_call_that_raises_has_submitted_nothing():
    x = torch.zeros(4, device=DEVICE)
    side = torch.openreg.Stream()
    with torch.openreg.stream(side), pytest.raises(torch.openreg.UnsynchronizedAccessError):
        x.add_(1)
    assert x.tolist() == [0.0] * 4
    with torch.openreg.stream(side):
        x.add_(1)  # ordered by the host, which has seen the zeros
    side.synchronize()
    assert x.tolist() == [1.0] * 4
