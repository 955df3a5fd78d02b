"""Names of arguments that do not follow from the number of a tensor among those of the command."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from reports import marked, parse

DEVICE = "openreg"


def second_access(launch, *, shape=(4, 4), dtype=torch.float32):
    x = torch.ones(shape, device=DEVICE, dtype=dtype)
    y = torch.ones(shape, device=DEVICE, dtype=dtype)
    torch.accelerator.synchronize()
    x.add_(1)
    side = torch.openreg.Stream()
    with torch.openreg.stream(side), pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        launch(x, y)
    return parse(str(caught.value)).second.argument


NAMES = {
    "mat2": lambda x, y: torch.addmm(y, y, x),  # a tensor that is given twice counts once
    "out": lambda x, y: torch.mul(y, 2, out=x),
    "src": lambda x, y: x.cpu(),
    "tensors[1]": lambda x, y: torch.cat([y, x]),
    "self[1]": lambda x, y: torch._foreach_add_([y, x], 1.0),
    "self": lambda x, y: x.index_put_((torch.zeros(1, dtype=torch.long, device=DEVICE),), y[0]),
    "min": lambda x, y: y.clamp_(min=x),  # `max` is None
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_arguments(name):
    assert second_access(NAMES[name]) == name


def test_the_value_of_an_attention():
    def attention(x, y):
        return F.scaled_dot_product_attention(y, y.clone(), x)

    assert second_access(attention, shape=(1, 1, 4, 4)) == "value"


def test_the_target_of_a_loss():
    x = torch.ones(4, 4, device=DEVICE)
    assert second_access(lambda target, _: F.nll_loss(x, target), shape=(4,), dtype=torch.long) == "target"


def test_the_deviations_of_normal():
    assert second_access(lambda std, mean: torch.normal(mean, std)) == "std"


def test_a_scalar_in_place():
    assert second_access(lambda x, _: torch.ops.aten.mul_.Scalar(x, 2.0)) == "self"


def test_the_index_of_put():
    def put(index, _):
        torch.ops.aten.put(torch.ones(4, device=DEVICE), index, torch.ones(4, device=DEVICE))

    assert second_access(put, shape=(4,), dtype=torch.long) == "index"


def gradient_race(loss, w):
    """Calls the backward pass, and returns the report of a write to the gradient on another stream."""
    torch.accelerator.synchronize()
    loss.backward()  # first
    with torch.openreg.stream(torch.openreg.Stream()):
        with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
            w.grad.mul_(2)
    return parse(str(caught.value))


def test_the_line_of_a_backward_pass_is_that_of_its_call():
    w = torch.ones(4, device=DEVICE, requires_grad=True)
    report = gradient_race((w * w).sum(), w)
    assert (report.first.file, report.first.line) == (__file__, marked(gradient_race, "first"))


def test_the_line_of_torch_autograd_grad():
    w = torch.ones(4, device=DEVICE, requires_grad=True)
    loss = (w * w).sum()
    torch.accelerator.synchronize()

    def grad():
        return torch.autograd.grad(loss, w)[0]  # first

    gradient = grad()
    with torch.openreg.stream(torch.openreg.Stream()), pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        gradient.mul_(2)
    first = parse(str(caught.value)).first
    assert (first.file, first.line) == (__file__, marked(grad, "first"))


def test_while_two_threads_wait_for_a_backward_pass_its_line_is_unknown():
    """Python does not say which of the two waits for which pass."""
    runs, ends = threading.Event(), threading.Event()
    other = torch.ones(4, device="openreg:1", requires_grad=True)
    y = other * 2
    y.register_hook(lambda _: (runs.set(), ends.wait(60))[0])
    thread = threading.Thread(target=y.sum().backward)
    thread.start()
    assert runs.wait(60)
    try:
        w = torch.ones(4, device=DEVICE, requires_grad=True)
        report = gradient_race((w * w).sum(), w)
    finally:
        ends.set()
        thread.join()
    assert report.first.op == "aten::add_.Tensor" and report.first.line is None
