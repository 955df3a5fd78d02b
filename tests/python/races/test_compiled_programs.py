"""Races of programs that are compiled: Inductor's kernels say which pointers they write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from linking import CANNOT_LINK, REASON
from reports import marked, parse

pytestmark = pytest.mark.skipif(bool(CANNOT_LINK), reason=REASON)
DEVICE = "openreg"


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@torch.compile
def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2 + 1


@torch.compile
def advance(x: torch.Tensor) -> None:
    x.add_(1).mul_(3)


def test_a_compiled_function_reads_too_early():
    x = torch.ones(64, device=DEVICE)
    scaled(x)
    torch.accelerator.synchronize()
    x.zero_()
    with torch.openreg.stream(torch.openreg.Stream()), pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        scaled(x)
    report = parse(str(caught.value))
    assert report.second.op.startswith("inductor::cpp_fused") and report.second.verb == "reads"
    assert (report.first.op, report.first.verb) == ("aten::zero_", "wrote")


def test_the_line_of_a_compiled_backward_pass_is_that_of_its_call():
    x = torch.ones(64, device=DEVICE, requires_grad=True)

    def backward():
        scaled(x).sum().backward()  # first

    backward()  # compiles
    x.grad = None
    torch.accelerator.synchronize()
    backward()
    with torch.openreg.stream(torch.openreg.Stream()), pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        x.grad + 1
    first = parse(str(caught.value)).first
    assert first.op.startswith("inductor::cpp_fused") and (first.file, first.line) == (
        __file__,
        marked(backward, "first"),
    )


def test_a_compiled_function_writes_too_early():
    def program():
        x = torch.ones(64, device=DEVICE)  # block
        advance(x)
        torch.accelerator.synchronize()
        with torch.openreg.stream(torch.openreg.Stream()):
            advance(x)
        x + 1  # second

    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        program()
    report = parse(str(caught.value))
    assert report.first.op.startswith("inductor::cpp_fused") and report.first.verb == "wrote"
    assert report.second.line == marked(program, "second") and report.allocated == marked(program, "block")


def test_compiled_functions_that_read_the_same_tensor_are_silent():
    x = torch.ones(64, device=DEVICE)
    scaled(x)
    torch.accelerator.synchronize()
    scaled(x)
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        y = scaled(x)
    torch.openreg.current_stream().wait_stream(side)
    advance(y)
    y.tolist()


def test_compiled_training_is_silent():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(layer.parameters())
    compiled = torch.compile(layer)
    for _ in range(4):
        optimizer.zero_grad()
        compiled(torch.ones(4, 8, device=DEVICE)).square().mean().backward()
        optimizer.step()
    assert all(p.isfinite().all().item() for p in layer.parameters())


@torch.compile
def scaled_half(x: torch.Tensor) -> torch.Tensor:
    return x[:32] * 2 + 1


@torch.compile
def put_rows(x: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    x[index] = rows


def test_compiled_functions_that_use_some_elements_are_compared_with_all():
    x = torch.ones(64, device=DEVICE)
    rows, index = torch.ones(32, device=DEVICE), torch.arange(32, device=DEVICE)
    side = torch.openreg.Stream()
    scaled_half(x)
    put_rows(x, index, rows)
    torch.accelerator.synchronize()

    y = scaled_half(x)
    with torch.openreg.stream(side):
        x[32:].add_(1)
        with pytest.raises(torch.openreg.UnsynchronizedAccessError):
            x.add_(1)
    torch.accelerator.synchronize()

    put_rows(x, index, rows)
    with torch.openreg.stream(side):
        put_rows(x, index + 32, rows)
        with pytest.raises(torch.openreg.UnsynchronizedAccessError):
            x + 1
    torch.accelerator.synchronize()
    assert y.tolist() == [3.0] * 32 and x.tolist() == [1.0] * 64
