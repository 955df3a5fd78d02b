"""A model trains, as on the CPU."""

from __future__ import annotations

import math

import pytest
import torch
from devices import DEVICE
from torch import nn
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


def losses(device: str, optimizer_class, **options) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = optimizer_class(model.parameters(), lr=0.05, **options)
    x, y = torch.randn(20, 16).to(device), torch.randint(4, (20,)).to(device)
    result = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize(
    ("optimizer_class", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
        (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"foreach": False}),
    ],
)
def test_losses_equal_the_cpus(optimizer_class, options):
    expected = losses("cpu", optimizer_class, **options)
    got = losses(DEVICE, optimizer_class, **options)
    assert got == pytest.approx(expected, abs=1e-4)
    assert got[-1] < got[0]


def test_module_to_keeps_the_parameters():
    model = nn.Linear(3, 2)
    weight = model.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(DEVICE)
    assert model.weight is weight
    assert weight.device == torch.device(f"{DEVICE}:0")
    assert optimizer.param_groups[0]["params"][0] is weight
    model.to("cpu")
    assert model.weight is weight and weight.is_cpu


def test_data_of_a_parameter_can_be_replaced():
    p = nn.Parameter(torch.ones(3))
    p.data = torch.full((3,), 2.0, device=DEVICE)
    assert p.device == torch.device(f"{DEVICE}:0")
    assert p.detach().cpu().tolist() == [2.0] * 3


def test_backward_on_two_devices():
    x = torch.randn(4, 4, requires_grad=True)
    a = x.detach().to(f"{DEVICE}:0").requires_grad_()
    loss = ((a @ a).to(f"{DEVICE}:1") * 3).sum()
    loss.backward()
    ((x @ x) * 3).sum().backward()
    assert a.grad.device == torch.device(f"{DEVICE}:0")
    assert_close(a.grad.cpu(), x.grad)


def test_backward_on_a_side_stream():
    x = torch.randn(50, 50)
    a = x.to(DEVICE).requires_grad_()
    stream = torch.Stream(DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        loss = (a @ a).square().sum()
    torch.accelerator.current_stream().wait_stream(stream)
    loss.backward()
    b = x.clone().requires_grad_()
    (b @ b).square().sum().backward()
    assert_close(a.grad.cpu(), b.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["default", "foreach", "fused"])
def test_a_grad_scaler_unscales_and_skips_what_overflows(options):
    def weights_and_scale(device: str) -> tuple[torch.Tensor, float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **options)
        scaler = torch.amp.GradScaler(device, init_scale=16.0)
        x = torch.linspace(-1, 1, 8).view(2, 4).to(device)
        for factor in (1.0, math.inf, 2.0):  # the second step overflows: it is skipped, and the scale halved
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean() * factor).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        return model.weight.detach().cpu(), scaler.get_scale()

    weights, scale = weights_and_scale(DEVICE)
    expected, expected_scale = weights_and_scale("cpu")
    assert scale == expected_scale == 8.0
    torch.testing.assert_close(weights, expected)


THREADS_OF_A_TRAINING_STEP = """
from pathlib import Path
import torch

model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16)).to("openreg")
x = torch.randn(16, 8, 32, 32).to("openreg")
for _ in range(3):
    model(x).square().mean().backward()
torch.accelerator.synchronize()
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
of_autograd = [name for name in names if name.startswith("pt_autograd")]
assert of_autograd and len(of_autograd) == len(set(of_autograd)), names
"""


@pytest.mark.openreg_only
def test_autograds_thread_keeps_no_team(run_python):
    # A second OpenMP team in the process makes each parallel region of both cost a wake from sleep. Threads of a team
    # have the name of the one that made it.
    run_python(THREADS_OF_A_TRAINING_STEP, OMP_NUM_THREADS="2")
