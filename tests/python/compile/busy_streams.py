"""Trains a program while streams that it uses are behind: what lacks an order gets other values then."""

from __future__ import annotations

from collections.abc import Callable

import torch

LONG = 20_000_000  # nanoseconds

Streams = list[torch.Stream]
Program = Callable[[torch.Tensor, torch.Tensor, Streams], torch.Tensor]


def train(
    program: Program,
    x: torch.Tensor,
    w: torch.Tensor,
    side: Streams,
    busy: str = "",
    devices: tuple[int, ...] = (0,),
) -> list[torch.Tensor]:
    """A result and its gradients, on device 0, by those of `x` and `w` that have one.

    The streams named `busy` begin late with the forward and the backward pass: "current", those that are current on
    the devices, or "side".
    """
    x, w = x.to("openreg:0").requires_grad_(), w.to("openreg:0").requires_grad_()
    current = [torch.openreg.current_stream(device) for device in devices]
    late = {"": [], "current": current, "side": side}[busy]
    seed = torch.ones_like(x)
    _synchronize(devices)
    torch.manual_seed(3)
    _keep_busy(late)
    y = program(x, w, side)
    result = y.detach().clone()
    _keep_busy(late)
    y.backward(seed)
    gradients = [each.grad.clone() for each in (x, w) if each.grad is not None]
    _synchronize(devices)
    return [result, *gradients]


def _keep_busy(streams: Streams) -> None:
    for stream in streams:
        with stream:
            torch.openreg._sleep(LONG)


def _synchronize(devices: tuple[int, ...]) -> None:
    for device in devices:
        torch.openreg.synchronize(device)
