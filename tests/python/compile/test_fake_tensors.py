"""FakeTensor: tensors of the device without memory, as tracing and export use them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


@pytest.fixture
def fake():
    torch.openreg.init()
    with FakeTensorMode() as mode:
        yield mode


def test_a_fake_tensor_is_of_the_device_and_takes_no_memory(fake):
    before = torch.openreg.memory_allocated(0), torch.openreg.launch_stats()
    x = torch.empty(1 << 20, 1 << 20, device="openreg")
    y = (x @ x).sum(0).softmax(0)
    assert isinstance(y, FakeTensor)
    assert (y.device, y.shape, y.dtype) == (torch.device("openreg:0"), (1 << 20,), torch.float32)
    assert (torch.openreg.memory_allocated(0), torch.openreg.launch_stats()) == before


OPERATIONS = {
    "convolution": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]),
    "matrix product": lambda x: x @ x.t(),
    "linear algebra": lambda x: torch.linalg.svd(x)[1],
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "random": lambda x: F.dropout(torch.rand_like(x)) + torch.randn(4, device=x.device),
    "normalisation": lambda x: F.layer_norm(x, (4,)),
    "sort": lambda x: x.sort(-1)[1],
    "indexing": lambda x: x[torch.tensor([0, 2], device=x.device)],
    "in place": lambda x: x.add_(1).t(),
    "conjugate": lambda x: torch.fft.fft(x).conj(),
    "half": lambda x: x.half().cumsum(0),
    "copy to the CPU": lambda x: x.cpu(),
    "copy to a device": lambda x: x.to("openreg:1", torch.float64),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fake_result_looks_like_the_real_one(name):
    operation = OPERATIONS[name]
    real = torch.randn(4, 4, device="openreg")
    expected = operation(real.clone())
    with FakeTensorMode() as mode:
        got = operation(mode.from_tensor(real))
    assert isinstance(got, FakeTensor) and not isinstance(expected, FakeTensor)
    for attribute in ("device", "shape", "dtype", "is_conj"):
        e, g = getattr(expected, attribute), getattr(got, attribute)
        assert (g() if callable(g) else g) == (e() if callable(e) else e), attribute
    assert got.stride() == expected.stride()


def test_devices_are_distinguished(fake):
    assert torch.ones(1, device="openreg:1").device.index == 1
    x = torch.ones(1, device="openreg")
    for other in ("openreg:1", "cpu"):
        with pytest.raises(RuntimeError, match="on the same device"):
            x + torch.ones(1, device=other)
    assert (x + torch.tensor(1.0)).device.type == "openreg"  # a number of the CPU is welcome


def test_a_module_is_made_and_differentiated_without_memory(fake):
    model = nn.LSTM(3, 5, device="openreg")
    output, _ = model(torch.randn(7, 2, 3, device="openreg"))
    output.sum().backward()
    assert output.shape == (7, 2, 5)
    assert {(p.grad.device.type, p.grad.shape == p.shape) for p in model.parameters()} == {("openreg", True)}


def test_data_cannot_be_read(fake):
    with pytest.raises(torch._subclasses.fake_tensor.DataDependentOutputException):
        torch.ones(1, device="openreg").item()


def test_fake_tensors_do_not_use_the_device(run_python):
    run_python(
        "import torch\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "with FakeTensorMode():\n"
        "    x = torch.randn(3, device='openreg') * 2\n"
        "    assert x.to('openreg:1').device == torch.device('openreg', 1) and x.device == torch.device('openreg', 0)\n"
        "assert not torch.openreg.is_initialized()\n"
        "assert torch.ones(2, device='openreg').sum().item() == 2\n"
    )


def test_a_meta_model_gets_its_memory_on_the_device():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model.to_empty(device="openreg:1")
    nn.init.ones_(model.weight)
    assert model.weight.device == torch.device("openreg:1") and model.weight.sum().item() == 6
