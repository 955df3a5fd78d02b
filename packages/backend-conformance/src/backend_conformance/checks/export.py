"""Export: programs that are captured ahead of time, by `torch.export`, `torch.fx` and `torch.jit`."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (self.layer(x).relu() * self.scale + torch.ones(3, device=x.device)).cumsum(0)
        return result


def model(where: torch.device | str) -> tuple[Model, torch.Tensor]:
    torch.manual_seed(6)
    made = Model()
    return made.to(where), torch.linspace(-1, 1, 20).view(5, 4).to(where)


def compare(device: Device, call: Any, x: torch.Tensor) -> None:
    reference, _ = model("cpu")
    device.cpu_equal(call(x), reference(x.cpu()), rtol=1e-3, atol=1e-3)


@check(level=Level.COMPLETE, hook="fake tensors", timeout=120.0)
def programs_are_exported_and_loaded(device: Device) -> None:
    """A model on the device is exported with a dynamic size, saved, loaded, and run with other sizes.

    The parameters are saved as tensors of the device.
    """
    module, x = model(device.this)
    program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    compare(device, program.module(), x)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert all(each.device == device.this for each in loaded.state_dict.values())
    compare(device, loaded.module(), torch.cat([x, x]))


@check(level=Level.COMPLETE, hook="fake tensors", timeout=120.0)
def exported_programs_are_decomposed_and_moved(device: Device) -> None:
    """A program that was exported on the CPU moves to the device, and runs after its decomposition.

    Decompositions are PyTorch's; they consist of core operators.
    """
    from torch.export.passes import move_to_device_pass

    module, x = model("cpu")
    program = move_to_device_pass(torch.export.export(module, (x,)), device.name)
    compare(device, program.module(), x.to(device.this))
    there, x = model(device.this)
    compare(device, torch.export.export(there, (x,)).run_decompositions().module(), x)


@check(level=Level.COMPLETE, hook="dispatch of the operators", timeout=120.0)
def fx_traces_forward_and_backward(device: Device) -> None:
    """`make_fx` traces a function and its gradient on the device, with real and with fake tensors.

    The graph's factories name the device.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: (y.sin() * torch.ones(4, device=y.device)).sum())(x)  # type: ignore[no-any-return]

    x = torch.linspace(-1, 1, 4, device=device.this)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(gradient, tracing_mode=mode)(x)
        device.cpu_equal(graph(x + 1), (x.cpu() + 1).cos(), rtol=1e-4, atol=1e-5)


@check(level=Level.COMPLETE, hook="dispatch of the operators; serialization", timeout=120.0)
def script_traces_are_saved_and_loaded(device: Device) -> None:
    """`torch.jit.trace` and `torch.jit.script` give programs that run on the device, and are loaded to it.

    TorchScript is no longer developed, but many models are still stored in it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, x = model(device.this)
        traced = torch.jit.trace(module, (x,))
        compare(device, traced, x)
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to(device.this))
        assert scripted(x).device == device.this
        file = io.BytesIO()
        torch.jit.save(traced, file)
        for target in (device.name, None, "cpu"):
            file.seek(0)
            loaded = torch.jit.load(file, map_location=target)
            if target != "cpu":
                compare(device, loaded, x)
