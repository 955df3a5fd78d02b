"""Hooks of autograd see the device's tensors, in the order and with the values of the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device

Log = list[tuple[str, Any]]


def both(scenario: Callable[[str, Log], None]) -> Log:
    """What a scenario logs on the device, once it is known to be what it logs on the CPU."""
    logs: dict[str, Log] = {}
    for device in ("cpu", DEVICE):
        logs[device] = []
        scenario(device, logs[device])
    assert logs[DEVICE] == logs["cpu"]
    return logs[DEVICE]


def seen(device: str, *tensors: torch.Tensor | None) -> list[list[float] | None]:
    assert all(tensor is None or tensor.device.type == device for tensor in tensors)
    return [None if tensor is None else tensor.flatten().tolist() for tensor in tensors]


def test_hooks_of_tensors_and_nodes_run_in_order():
    def scenario(device: str, log: Log) -> None:
        x = torch.ones(2, device=device, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: log.append(("tensor", seen(device, g))) or g * 3)
        y.grad_fn.register_prehook(lambda gs: log.append(("before node", seen(device, *gs))))
        y.grad_fn.register_hook(lambda ins, outs: log.append(("node", seen(device, *ins, *outs))))
        x.register_hook(lambda g: log.append(("leaf", seen(device, g))))
        x.register_post_accumulate_grad_hook(lambda p: log.append(("accumulated", seen(device, p.grad))))
        y.retain_grad()
        (y * y).sum().backward()
        log.append(("retained", seen(device, y.grad)))

    kinds = [kind for kind, _ in both(scenario)]
    assert kinds == ["tensor", "before node", "node", "leaf", "accumulated", "retained"]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_hook_of_several_gradients_sees_all_devices(mode):
    calls: list[Any] = []
    a = torch.ones(2, device=f"{DEVICE}:0", requires_grad=True)
    b = torch.ones(2, device=f"{DEVICE}:1", requires_grad=True)
    torch.autograd.graph.register_multi_grad_hook([a, b], calls.append, mode=mode)
    (a.sum() + b.sum().to(f"{DEVICE}:0")).backward()
    gradients = calls[0] if mode == "all" else calls
    assert len(calls) == 1
    assert all(g.tolist() == [1.0, 1.0] for g in gradients)
    if mode == "all":
        assert [g.device.index for g in gradients] == [0, 1]


def test_memory_of_saved_tensors_on_the_cpu_is_not_the_devices():
    def held(context: Any) -> int:
        x = torch.ones(1 << 20, device=DEVICE, requires_grad=True)
        before = torch.accelerator.memory_allocated()
        with context:
            y = x.exp().exp().sum()
        held_bytes = torch.accelerator.memory_allocated() - before
        y.backward()
        assert x.grad.isfinite().all()
        return held_bytes

    assert held(contextlib.nullcontext()) >= 2 * 4 << 20
    assert held(torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=DEVICE)) < 1 << 20


def test_saved_tensors_may_be_changed_where_that_is_allowed():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.exp()
        y.mul_(2)
        y.sum().backward()
    assert_close(x.grad, 2 * x.detach().exp())


def test_a_hook_that_raises_stops_the_backward_pass():
    x = torch.ones(2, device=DEVICE, requires_grad=True)

    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("from the hook")

    handle = x.register_hook(fail)
    with pytest.raises(ValueError, match="from the hook"):
        (x * 2).sum().backward()
    assert x.grad is None
    handle.remove()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
