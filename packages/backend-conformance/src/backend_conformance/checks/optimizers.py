"""Optimizers: all of `torch.optim`, in their variants, against the CPU.

An optimizer is plain operators (`foreach=False`), operators on lists (`foreach=True`, the default on accelerators),
or one kernel (`fused=True`). `capturable=True` keeps the step count on the device. All of them must take the steps of
the CPU.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check, missing, not_applicable

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adadelta": {"lr": 0.5},
    "Adafactor": {"lr": 0.1},
    "Adagrad": {"lr": 0.1, "weight_decay": 0.01},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "weight_decay": 0.1},
    "Adamax": {"lr": 0.1},
    "ASGD": {"lr": 0.1},
    "LBFGS": {"lr": 0.5, "max_iter": 3},
    "Muon": {"lr": 0.1},
    "NAdam": {"lr": 0.1, "weight_decay": 0.01},
    "RAdam": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
}
FOREACH = [name for name in OPTIMIZERS if name not in ("LBFGS", "Muon")]
FUSED = ["Adagrad", "Adam", "AdamW", "SGD"]
CAPTURABLE = ["Adadelta", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"]


def shapes(name: str) -> tuple[tuple[int, ...], ...]:
    return ((4, 3), (6, 2)) if name == "Muon" else ((4, 3), (5,), ())


def trained(name: str, where: torch.device | str, steps: int = 4, **options: Any) -> list[torch.Tensor]:
    """The parameters after some steps on a quadratic function with minima that differ by element."""
    generator = torch.Generator().manual_seed(3)
    values = [torch.randn(shape, generator=generator) for shape in shapes(name)]
    minima = [torch.randn(shape, generator=generator).to(where) for shape in shapes(name)]
    parameters = [nn.Parameter(each.to(where)) for each in values]
    optimizer = getattr(torch.optim, name)(parameters, **{**OPTIMIZERS[name], **options})

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - m) ** 2).sum() for p, m in zip(parameters, minima, strict=True))
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        return loss

    for _ in range(steps):
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [each.detach() for each in parameters]


def compare(device: Device, got: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 2e-4) -> None:
    for number, (mine, wanted) in enumerate(zip(got, expected, strict=True)):
        try:
            device.cpu_equal(mine, wanted, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(f"parameter {number}: {error}") from None


@check(level=Level.TRAINS, hook="the operators of the optimizer", cases=tuple(OPTIMIZERS))
def optimizer_takes_the_steps_of_the_cpu(device: Device, case: str) -> None:
    """An optimizer with its default implementation changes the parameters as on the CPU.

    On an accelerator the default is `foreach`, if the optimizer has it.
    """
    if not hasattr(torch.optim, case):
        not_applicable(f"this version of torch has no {case}")
    tolerance = 2e-2 if case == "Muon" else 2e-4  # Muon computes in bfloat16
    compare(device, trained(case, device.this), trained(case, "cpu"), tolerance)


@check(level=Level.TRAINS, hook="aten::_foreach_*", cases=FOREACH)
def foreach_takes_the_same_steps(device: Device, case: str) -> None:
    """`foreach=True` and `foreach=False` take the CPU's steps, with `maximize` as well.

    The two implementations use different operators.
    """
    for options in ({}, {"maximize": True}):
        expected = trained(case, "cpu", foreach=False, **options)
        for foreach in (False, True):
            compare(device, trained(case, device.this, foreach=foreach, **options), expected)


@check(level=Level.COMPLETE, hook="aten::_fused_adam_, _fused_adamw_, _fused_sgd_, _fused_adagrad_", cases=FUSED)
def fused_takes_the_same_steps(device: Device, case: str) -> None:
    """`fused=True` takes the CPU's steps, and skips a step if the gradient scaler found an infinity.

    PyTorch lists PrivateUse1 among the devices with fused optimizers, so programs may ask for it.
    """
    try:
        fused = trained(case, device.this, fused=True)
    except RuntimeError as error:
        if "`fused=True` requires" in str(error):
            missing(str(error))
        raise
    compare(device, fused, trained(case, "cpu", foreach=False))
    if case == "Adagrad":
        return  # takes no part in gradient scaling
    parameter = nn.Parameter(torch.ones(3, device=device.this))
    optimizer = getattr(torch.optim, case)([parameter], **{**OPTIMIZERS[case], "fused": True})
    scaler = torch.amp.GradScaler(device.name, init_scale=8.0)
    scaler.scale((parameter * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    device.cpu_equal(parameter, torch.ones(3))
    optimizer.zero_grad()
    scaler.scale((parameter * 2).sum()).backward()
    scaler.step(optimizer)
    assert bool((parameter < 1).all()), "the step with finite gradients was skipped"


@check(level=Level.COMPLETE, hook="the operators of the optimizer", cases=CAPTURABLE)
def capturable_takes_the_same_steps(device: Device, case: str) -> None:
    """`capturable=True`, which keeps the step count on the device, takes the CPU's steps.

    Graphs need it: a step count on the host would be captured as a constant.
    """
    expected = trained(case, "cpu", foreach=False)
    for foreach in (False, True):
        compare(device, trained(case, device.this, foreach=foreach, capturable=True), expected)


@check(level=Level.TRAINS, hook="the operators of the optimizer")
def optimizer_state_is_saved_and_restored(device: Device) -> None:
    """The state of an optimizer moves between the CPU and the device, and training continues unchanged.

    `load_state_dict` copies the state to the parameters' devices.
    """

    def step(parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        (parameter**2).sum().backward()
        optimizer.step()

    here = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer_here = torch.optim.Adam([here], lr=0.1)
    there = nn.Parameter(here.detach().to(device.this))
    optimizer_there = torch.optim.Adam([there], lr=0.1)
    step(here, optimizer_here)
    step(there, optimizer_there)
    state = optimizer_there.state_dict()["state"][0]
    assert state["exp_avg"].device == device.this
    back = nn.Parameter(there.detach().cpu())
    optimizer_back = torch.optim.Adam([back], lr=0.1)
    optimizer_back.load_state_dict(copy.deepcopy(optimizer_there.state_dict()))
    assert optimizer_back.state_dict()["state"][0]["exp_avg"].device.type == "cpu"
    for parameter, optimizer in ((here, optimizer_here), (there, optimizer_there), (back, optimizer_back)):
        step(parameter, optimizer)
    device.cpu_equal(there, here)
    torch.testing.assert_close(back, here)


@check(level=Level.TRAINS, hook="the operators of the optimizer")
def learning_rates_are_scheduled(device: Device) -> None:
    """Schedulers change the learning rate, a tensor on the device as well, and SWA averages the parameters.

    A learning rate in a tensor is used by captured and compiled optimizers.
    """

    def run(where: torch.device | str, rate: float | torch.Tensor) -> torch.Tensor:
        parameter = nn.Parameter(torch.tensor([1.0, -2.0], device=where))
        optimizer = torch.optim.Adam([parameter], lr=rate, capturable=isinstance(rate, torch.Tensor))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        module = nn.Module()
        module.weight = parameter
        average = torch.optim.swa_utils.AveragedModel(module)
        for _ in range(3):
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            optimizer.step()
            scheduler.step()
            average.update_parameters(module)
        result = torch.cat([parameter.detach(), next(average.parameters()).detach()])
        return result

    expected = run("cpu", 0.1)
    device.cpu_equal(run(device.this, 0.1), expected, rtol=1e-4, atol=1e-5)
    device.cpu_equal(run(device.this, torch.tensor(0.1, device=device.this)), expected, rtol=1e-4, atol=1e-5)
