"""TorchScript on the device."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


def make_model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(72, 3)
    return nn.Sequential(*layers).eval()


X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def traced(model: nn.Module) -> torch.jit.ScriptModule:
    return torch.jit.trace(model, X.to("openreg"))


MAKERS = {
    "trace": traced,
    "script": torch.jit.script,
    "freeze": lambda model: torch.jit.freeze(torch.jit.script(model)),
    "optimize_for_inference": lambda model: torch.jit.optimize_for_inference(torch.jit.script(model)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_compiled_model_computes_as_the_cpu(maker):
    module = MAKERS[maker](make_model().to("openreg"))
    expected = make_model()(X)
    for _ in range(3):  # the first runs are profiled, later ones optimised
        got = module(X.to("openreg"))
        assert got.device.type == "openreg"
        assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["openreg:0", "openreg:1", "cpu"])
def test_a_saved_module_loads_on_any_device(target):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(make_model().to("openreg")), file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location=target)
    assert {p.device for p in loaded.parameters()} == {torch.device(target)}
    assert_close(loaded(X.to(target)).cpu(), make_model()(X))


def test_a_module_that_is_loaded_without_a_target_is_where_it_was():
    file = io.BytesIO()
    torch.jit.save(traced(make_model().to("openreg:0")), file)
    file.seek(0)
    assert {str(p.device) for p in torch.jit.load(file).parameters()} == {"openreg:0"}


def test_gradients_of_scripted_functions_are_the_cpus():
    @torch.jit.script
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(a * b + a).sigmoid() * b

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(4):
        gradients = []
        for device in ("cpu", "openreg"):
            x = a.clone().to(device).requires_grad_()
            function(x, b.to(device)).sum().backward()
            gradients.append(x.grad.cpu())
        assert_close(*gradients)


def test_scripted_code_makes_and_moves_tensors_by_device():
    @torch.jit.script
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.ones([3], device=x.device)
        z = torch.ones([3], device="openreg:1") * 2
        return y + z.to(x.device)

    for _ in range(3):
        got = function(torch.zeros(1, device="openreg"))
        assert got.device == torch.device("openreg:0") and got.tolist() == [3.0] * 3


def test_a_forked_task_computes_on_the_device():
    @torch.jit.script
    def function(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(torch.sin, x)
        return torch.jit.wait(future) + torch.cos(x)

    x = torch.randn(4)
    assert_close(function(x.to("openreg")).cpu(), x.sin() + x.cos())
