"""Graphs: kept, differentiated twice, over several devices and streams, and the errors for mistakes."""

from __future__ import annotations

import threading

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


def test_a_graph_can_be_kept():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_gradients_have_gradients():
    x = torch.arange(1.0, 4.0, device=DEVICE, requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3.0, 12.0, 27.0] and second.tolist() == [6.0, 12.0, 18.0]


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


def test_threads_differentiate_at_the_same_time():
    results: list[float] = []

    def work(index: int) -> None:
        x = torch.full((100,), float(index), device=f"{DEVICE}:{index % 2}", requires_grad=True)
        for _ in range(5):
            (x * x).sum().backward()
        results.append(x.grad.sum().item() == 1000 * index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


@pytest.mark.filterwarnings("ignore:.*Anomaly Detection has been enabled")
def test_anomaly_mode_names_the_forward_call_of_a_nan():
    x = torch.tensor([-1.0], device=DEVICE, requires_grad=True)
    with torch.autograd.detect_anomaly(), pytest.warns(UserWarning, match=r"torch\.sqrt\(x\)  # the line"):
        y = torch.sqrt(x)  # the line
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values in its 0th output"):
            y.sum().backward()
    torch.sqrt(x).sum().backward()
    assert x.grad.isnan().all()


def test_a_tensor_that_was_changed_after_it_was_saved_is_an_error():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="output 0 of Exp, is at version 1; expected version 0"):
        y.sum().backward()


def test_leaves_and_inference_tensors_are_guarded():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
        x.add_(1)
    with torch.inference_mode():
        y = x * 2
    assert y.is_inference() and not y.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * y
    with torch.no_grad():
        assert not (x * 2).requires_grad


def test_gradients_accumulate_in_place_and_keep_their_layout():
    x = torch.ones(2, 3, 4, 5, device=DEVICE).to(memory_format=torch.channels_last).requires_grad_()
    (x * 2).sum().backward()
    pointer = x.grad.data_ptr()
    (x * 2).sum().backward()
    assert x.grad.data_ptr() == pointer and x.grad.unique().tolist() == [4.0]
    assert x.grad.stride() == x.stride()


def test_views_and_in_place_operations_are_followed():
    def gradient(device: str) -> torch.Tensor:
        x = torch.arange(6.0).view(2, 3).to(device).requires_grad_()
        y = x.clone()
        y[0].mul_(3)
        y.t()[1:].add_(y[:1, :2].detach().t())
        y.diagonal().copy_(x[1, :2] * 5)
        (y * y).sum().backward()
        return x.grad.cpu()

    assert_close(gradient(DEVICE), gradient("cpu"))
