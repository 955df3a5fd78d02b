"""Collectives run on a stream of their own: their works order what follows, if somebody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from reports import Report, marked, parse

DEVICE = "openreg"


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1, device=DEVICE))
    torch.accelerator.synchronize()
    yield
    torch.accelerator.synchronize()
    dist.destroy_process_group()


def race_of(program: Callable[[], object]) -> Report:
    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        program()
    report = parse(str(caught.value))
    assert report.allocated == marked(program, "block")
    for access, mark in ((report.first, "first"), (report.second, "second")):
        line = marked(program, mark)
        assert line is None or (access.file, access.line) == (__file__, line)
    return report


def test_a_result_is_read_before_the_collective_was_waited_for():
    def program():
        x = torch.ones(4, device=DEVICE)  # block
        torch.accelerator.synchronize()
        work = dist.all_reduce(x, async_op=True)  # first
        x + 1  # second
        work.wait()

    report = race_of(program)
    assert (report.first.op, report.first.verb) == ("occl::all_reduce", "wrote")
    assert (report.second.op, report.second.verb, report.second.argument) == ("aten::add.Tensor", "reads", "self")
    assert "wait for the collective of" in report.suggested_fix and "by wait() of its work" in report.suggested_fix


def test_a_result_is_read_on_a_stream_that_did_not_wait():
    def program():
        x = torch.ones(4, device=DEVICE)  # block
        torch.accelerator.synchronize()
        dist.all_reduce(x, async_op=True).wait()  # first
        with torch.openreg.stream(torch.openreg.Stream()):
            x + 1  # second

    report = race_of(program)
    assert (report.first.op, report.second.op) == ("occl::all_reduce", "aten::add.Tensor")


def test_the_host_reads_before_the_collective_was_waited_for():
    def program():
        x = torch.ones(4, device=DEVICE)  # block
        torch.accelerator.synchronize()
        work = dist.all_reduce(x, async_op=True)  # first
        x[0].item()  # second
        work.wait()

    report = race_of(program)
    assert report.second.stream is None
    assert "call wait() of the work of" in report.suggested_fix


def test_the_input_is_written_on_a_stream_that_the_collective_does_not_wait_for():
    def program():
        x = torch.ones(4, device=DEVICE)  # block
        torch.accelerator.synchronize()
        with torch.openreg.stream(torch.openreg.Stream()):
            x.add_(1)  # first
        dist.all_reduce(x)  # second

    report = race_of(program)
    assert (report.first.op, report.second.op) == ("aten::add_.Tensor", "occl::all_reduce")
    assert report.second.argument == "its output"
    assert report.suggested_fix.startswith("Let the stream that is current at ")


def test_an_input_is_refilled_before_the_collective_was_waited_for():
    def program():
        x = torch.ones(4, device=DEVICE)  # block
        y = [torch.empty(4, device=DEVICE)]
        torch.accelerator.synchronize()
        work = dist.all_gather(y, x, async_op=True)  # first
        x.zero_()  # second
        work.wait()

    report = race_of(program)
    assert (report.first.verb, report.second.verb) == ("read", "writes")


def test_works_that_are_waited_for_are_silent():
    x = torch.ones(4, device=DEVICE)
    outputs = [torch.empty(4, device=DEVICE)]
    joined = torch.empty(4, device=DEVICE)
    for _ in range(3):
        x.add_(1)
        dist.all_reduce(x)
        work = dist.all_gather(outputs, x, async_op=True)
        y = torch.ones(4, device=DEVICE) * 2  # other memory, at the same time
        work.wait()
        dist.all_gather_into_tensor(joined, x)
        dist.reduce_scatter_tensor(x, joined)
        dist.broadcast(x, 0)
        x.add_(outputs[0]).add_(joined)
    dist.barrier()
    assert (x + y).isfinite().all().item()


def test_an_input_that_is_only_read_is_silent():
    x, y = torch.ones(4, device=DEVICE), [torch.empty(4, device=DEVICE)]
    work = dist.all_gather(y, x, async_op=True)
    x + 1
    work.wait()
    x.add_(y[0])


def test_data_parallel_training_is_silent():
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8, device=DEVICE))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(2, 8, device=DEVICE)).square().mean().backward()
        optimizer.step()
    assert all(p.isfinite().all().item() for p in layer.parameters())


@pytest.mark.parametrize("call", [dist.all_gather_into_tensor, dist.reduce_scatter_tensor])
def test_the_line_of_a_call_that_pytorch_decorates(call):
    """Of the program: not that of `typing_extensions`, whose `deprecated` wraps the function."""

    def program():
        x = torch.ones(4, device=DEVICE)  # block
        y = torch.ones(4, device=DEVICE)
        torch.accelerator.synchronize()
        with torch.openreg.stream(torch.openreg.Stream()):
            x.add_(1)  # first
        call(y, x)  # second

    race_of(program)
