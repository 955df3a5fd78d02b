"""torch.export of models on the device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x)).relu() * self.scale
        return y + torch.ones(4, device=x.device) * x.shape[0]


@pytest.fixture
def model():
    return Model().to("openreg").eval()


@pytest.fixture
def exported(model):
    x = torch.randn(5, 3, device="openreg")
    return torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})


def batch(size: int, device: str = "openreg") -> torch.Tensor:
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(size)).to(device)


def agrees(program: torch.export.ExportedProgram, device: str = "openreg:0") -> None:
    """The program runs on `device`, with batches of other sizes, and computes what the model does on the CPU."""
    for size in (2, 7):
        got = program.module()(batch(size, device))
        assert got.device == torch.device(device)
        assert_close(got.cpu(), Model().eval()(batch(size, "cpu")))


def test_a_program_computes_what_the_model_does(exported):
    agrees(exported)
    assert {str(tensor.device) for tensor in exported.state_dict.values()} == {"openreg:0"}


@pytest.mark.parametrize("strict", [True, False])
def test_both_ways_of_tracing_work(model, strict):
    x = batch(3)
    program = torch.export.export(model, (x,), strict=strict)
    assert_close(program.module()(x), model(x))


def test_a_training_program_trains(model):
    model.train()
    x = batch(6)
    program = torch.export.export(model, (x,)).module()
    program(x).sum().backward()
    reference = Model().train()
    reference(batch(6, "cpu")).sum().backward()
    assert_close(program.linear.weight.grad.cpu(), reference.linear.weight.grad, rtol=1e-4, atol=1e-4)
    assert_close(program.norm.running_mean.cpu(), reference.norm.running_mean)


def test_random_operators_take_the_devices_numbers():
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, 0.5) + torch.rand(3, device="openreg")

    x = torch.ones(3, device="openreg")
    program = torch.export.export(Noise(), (x,)).module()
    torch.manual_seed(5)
    expected = Noise()(x)
    torch.manual_seed(5)
    assert torch.equal(program(x), expected)
