"""Graphs: kept, differentiated twice, over several devices and streams, and the errors for mistakes."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


def test_a_gradient_edge_stands_for_a_tensor():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    edge = torch.autograd.graph.get_gradient_edge(y)
    z = (y * 3).sum()
    del y
    assert torch.autograd.grad(z, edge)[0].tolist() == [3.0] * 3


def test_devices_are_crossed_back_and_forth():
    def gradient(first: str, second: str) -> torch.Tensor:
        a = torch.arange(9.0).view(3, 3).to(first).requires_grad_()
        b = (a.sin().to(second) * 2).to(first)
        c = (b @ a).to(second)
        c.mul(torch.arange(3.0, device=second)).sum().backward()
        assert a.grad.device == torch.device(first)
        return a.grad.cpu()

    expected = gradient("cpu", "cpu")
    for pair in ((f"{DEVICE}:0", f"{DEVICE}:1"), (f"{DEVICE}:1", "cpu"), ("cpu", f"{DEVICE}:1")):
        assert_close(gradient(*pair), expected)


def test_each_node_runs_on_the_stream_of_its_forward():
    side = torch.Stream(f"{DEVICE}:0")
    other = torch.Stream(f"{DEVICE}:1")
    current = torch.accelerator.current_stream(f"{DEVICE}:0")
    streams: dict[str, torch.Stream] = {}

    def note(name: str, device: str):
        return lambda gradient: streams.setdefault(name, torch.accelerator.current_stream(device)) and None

    x = torch.ones(4, device=f"{DEVICE}:0", requires_grad=True)
    side.wait_stream(current)
    with side:
        y = x * 2
        y.register_hook(note("side", f"{DEVICE}:0"))
    other.wait_stream(side)
    with other:
        z = y.to(f"{DEVICE}:1") * 3
        z.register_hook(note("other", f"{DEVICE}:1"))
    current.wait_stream(other)
    w = z.to(f"{DEVICE}:0") * 5
    w.register_hook(note("current", f"{DEVICE}:0"))
    w.sum().backward()
    assert streams == {"side": side, "other": other, "current": current}
    assert x.grad.tolist() == [30.0] * 4  # read on the current stream, which waits for the others


def test_the_streams_of_a_backward_pass_wait_for_each_other():
    """Long work on a side stream in the backward pass; the current stream reads the gradient without a word."""
    side = torch.Stream(DEVICE)
    a = torch.randn(128, 128, dtype=torch.float64) / 11
    expected = a.clone().requires_grad_()
    got = a.to(DEVICE).requires_grad_()

    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x @ x / x.norm()
        return x

    long(expected).sum().backward()
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        y = long(got)
    torch.accelerator.current_stream().wait_stream(side)
    y.sum().backward()
    copy = got.grad * 1
    assert_close(copy.cpu(), expected.grad)


def test_a_backward_pass_inside_a_stream_leaves_its_gradients_to_that_stream():
    stream = torch.Stream(DEVICE)
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        (x * 2).sum().backward()
        assert (x.grad * 3).sum().item() == 6000
