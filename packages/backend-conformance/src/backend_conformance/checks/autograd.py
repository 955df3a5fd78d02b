"""Autograd: gradients, hooks, custom functions, and the engine's threads.

PyTorch runs backward nodes of a device in a thread of its own for each device index, on the streams of the forward
pass, with the guard's device set. The backend writes no code for derivatives, but its guard, events and kernels must
work in these threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import expect_error, in_threads, value


@check(level=Level.TRAINS, hook="PrivateUse1HooksInterface::hasPrimaryContext")
def gradients_are_computed(device: Device) -> None:
    """`backward` computes the CPU's gradients of a function with products, broadcasting, indexing and reductions.

    The engine asks hasPrimaryContext of the hooks before it starts, and raises if there are no hooks.
    """

    def gradients(where: torch.device | str) -> list[torch.Tensor]:
        x = torch.linspace(-1, 1, 12, device=where).view(3, 4).requires_grad_()
        y = torch.linspace(0.5, 2, 4, device=where).requires_grad_()
        z = (x * y + x.sum(0)).softmax(1)[:, 1:] @ torch.ones(3, 2, device=where)
        (z.square().mean() + x.index_select(1, torch.tensor([0, 0, 2], device=where)).exp().sum()).backward()
        assert x.grad is not None and y.grad is not None
        return [x.grad, y.grad]

    for got, wanted in zip(gradients(device.this), gradients("cpu"), strict=True):
        assert got.device == device.this
        device.cpu_equal(got, wanted, rtol=1e-5, atol=1e-6)


@check(level=Level.TRAINS, hook="in-place addition and copies in the engine's thread")
def gradients_accumulate(device: Device) -> None:
    """Gradients accumulate over calls, are kept for `retain_graph`, and have the parameter's strides.

    A second `backward` without `retain_graph` raises.
    """
    x = torch.ones(2, 3, 2, 2, device=device.this).to(memory_format=torch.channels_last).requires_grad_()
    y = (x * 3).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None and x.grad.stride() == x.stride(), "the gradient has other strides than its tensor"
    device.cpu_equal(x.grad, torch.full((2, 3, 2, 2), 6.0))
    z = x.exp().sum()
    z.backward()
    expect_error(z.backward, RuntimeError, "second time")


@check(level=Level.TRAINS, hook="the engine's threads")
def hooks_see_gradients_of_the_device(device: Device) -> None:
    """Hooks of tensors, nodes, accumulated gradients and modules are called, with tensors of the device.

    FSDP and DDP start their communication in them. A hook may replace the gradient.
    """
    seen: list[str] = []
    x = torch.ones(3, device=device.this, requires_grad=True)
    y = x * 2
    y.retain_grad()

    def replace(gradient: torch.Tensor) -> torch.Tensor:
        assert gradient.device == device.this
        seen.append("tensor")
        return gradient * 10

    y.register_hook(replace)
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append("accumulated"))
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("node"))
    module = torch.nn.Linear(3, 1, device=device.this)
    module.register_forward_hook(lambda *_: seen.append("forward"))
    module.register_full_backward_hook(lambda *_: seen.append("backward"))
    torch.nn.init.ones_(module.weight)
    module(y).sum().backward()
    assert sorted(seen) == ["accumulated", "backward", "forward", "node", "tensor"], f"the hooks that ran: {seen}"
    assert x.grad is not None and value(x.grad) == 20


@check(level=Level.TRAINS, hook="kernels in the engine's threads")
def custom_functions_save_and_return_tensors(device: Device) -> None:
    """A custom `autograd.Function` saves tensors, marks results, and computes its own gradient.

    Its backward function runs in the engine's thread for the device.
    """

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
            largest = x.argmax()
            ctx.save_for_backward(x, largest)
            ctx.factor = factor
            ctx.mark_non_differentiable(largest)
            return x * x * factor, largest

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None]:
            x, largest = ctx.saved_tensors
            assert x.device.type == device.name and largest.item() == 2
            return gradient * 2 * x * ctx.factor, None

    x = torch.tensor([1.0, 2.0, 3.0], device=device.this, requires_grad=True)
    y, largest = Scale.apply(x, 5.0)  # type: ignore[no-untyped-call]
    assert not largest.requires_grad and largest.item() == 2
    y.sum().backward()
    assert x.grad is not None
    device.cpu_equal(x.grad, torch.tensor([10.0, 20.0, 30.0]))


@check(level=Level.TRAINS, hook="derivatives of the operators", needs=("float64",))
def gradients_agree_with_differences(device: Device) -> None:
    """`gradcheck` and `gradgradcheck` accept a composition of common operators, in float64 on the device.

    They compare derivatives with finite differences, so they need no reference of another device.
    """
    x = torch.rand(3, 4, dtype=torch.float64, device=device.this, requires_grad=True)
    y = torch.rand(4, 2, dtype=torch.float64, device=device.this, requires_grad=True)

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(a @ b).logsumexp(1) * a.sin().sum(1)

    assert torch.autograd.gradcheck(function, (x, y))
    assert torch.autograd.gradgradcheck(function, (x, y))


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface", needs=("several_devices",))
def backward_crosses_devices(device: Device) -> None:
    """A graph over two devices has the right gradients, each on its tensor's device.

    The engine has a thread for each device index, and sets the device in it. The caller's current device stays.
    """
    seen: list[int] = []
    x = torch.ones(3, device=device.this, requires_grad=True)
    y = torch.ones(3, device=device.other, requires_grad=True)
    z = (x * 2).to(device.other)
    z.register_hook(lambda gradient: seen.append(torch.accelerator.current_device_index()))
    ((z * y).to(device.this) * x).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert x.grad.device == device.this and y.grad.device == device.other
    device.cpu_equal(x.grad, torch.full((3,), 4.0))
    device.cpu_equal(y.grad, torch.full((3,), 2.0))
    assert torch.accelerator.current_device_index() == 0, "backward changed the current device"
    assert seen == [1], f"the hook of a gradient of device 1 ran with the current device {seen}"


@check(level=Level.TRAINS, hook="DeviceGuardImplInterface; kernels in the engine's threads")
def backward_runs_in_several_threads(device: Device) -> None:
    """Four threads that call `backward` at the same time get their own gradients.

    They share the engine's thread of the device.
    """

    def work(start: float) -> None:
        x = torch.full((64,), start, device=device.this, requires_grad=True)
        for repetition in range(1, 21):
            (x * x).sum().backward()
            assert x.grad is not None
            assert value(x.grad) == 2 * start * repetition, f"thread {start} got {x.grad}"

    in_threads(*(partial(work, float(number)) for number in range(1, 5)))


@check(level=Level.TRAINS, hook="kernels in the engine's threads")
def backward_may_call_backward(device: Device) -> None:
    """A backward function that computes a gradient itself (reentrant backward) does not deadlock.

    Reentrant checkpoints do this. The engine starts another thread for the device if need be.
    """

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                copy = x.detach().requires_grad_()
                (result,) = torch.autograd.grad((copy**3).sum(), copy)
            return gradient * result

    x = torch.full((4,), 2.0, device=device.this, requires_grad=True)
    y = x
    for _ in range(2):
        y = Inner.apply(y)  # type: ignore[no-untyped-call]
    y.sum().backward()
    assert x.grad is not None and value(x.grad) == 9 * 2**8


@check(
    level=Level.TRAINS, hook="get_rng_state, set_rng_state, device, _initialized, get_amp_supported_dtype of the module"
)
def checkpoint_repeats_the_forward_pass(device: Device) -> None:
    """`torch.utils.checkpoint`, reentrant or not, repeats the forward pass with the same random numbers.

    It looks up the module's `get_rng_state`, `set_rng_state`, `device` and `_initialized`; if one is absent, the
    second forward pass silently draws other numbers, and the gradients are wrong.
    """
    from torch.utils.checkpoint import checkpoint

    for reentrant in (False, True):
        torch.manual_seed(5)
        x = torch.ones(500, device=device.this, requires_grad=True)
        y = checkpoint(lambda v: torch.nn.functional.dropout(v * 3, 0.5), x, use_reentrant=reentrant)
        y.sum().backward()
        assert 0 < int((y == 0).sum()) < 500, "dropout did nothing"
        assert x.grad is not None and torch.equal(x.grad.cpu(), y.detach().cpu()), (
            f"the second forward pass drew other numbers (use_reentrant={reentrant})"
        )


@check(level=Level.TRAINS, hook="kernels of the device")
def saved_tensors_move_to_the_host(device: Device) -> None:
    """`save_on_cpu` and saved-tensor hooks keep what backward needs in host memory, and bring it back.

    With `pin_memory=True` the copies are asynchronous.
    """
    expected = 3 * torch.linspace(0, 1, 100) ** 2
    for pin in (False, True):
        x = torch.linspace(0, 1, 100, device=device.this).requires_grad_()
        with torch.autograd.graph.save_on_cpu(pin_memory=pin, device_type=device.name):
            y = x * x * x
        y.sum().backward()
        assert x.grad is not None
        device.cpu_equal(x.grad, expected, rtol=1e-5, atol=1e-6)


@check(level=Level.TRAINS, hook="kernels of the device")
def anomaly_mode_names_the_operation(device: Device) -> None:
    """Anomaly mode raises at the first NaN gradient, and names the backward node.

    It reads values in the engine's thread.
    """
    x = torch.tensor([0.0, 1.0], device=device.this, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        y = torch.sqrt(x * 0) * 0
        expect_error(lambda: y.sum().backward(), RuntimeError, "nan")
    (gradient,) = torch.autograd.grad((x * 2).sum(), x)
    assert value(gradient) == 2


@check(level=Level.TRAINS, hook="dispatch keys of the device")
def modes_without_gradients_work(device: Device) -> None:
    """`no_grad`, `enable_grad` and `inference_mode` have their effect on tensors of the device.

    Inference tensors have no version counter, and no autograd key.
    """
    x = torch.ones(3, device=device.this, requires_grad=True)
    with torch.no_grad():
        without = x * 2
        with torch.enable_grad():
            again = x * 2
    assert (without.requires_grad, again.requires_grad) == (False, True)
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        assert y.is_inference() and not y.requires_grad
    expect_error(lambda: x * y, RuntimeError, "inference")
    device.cpu_equal(y.clone(), torch.full((3,), 3.0))
    expect_error(lambda: x.add_(1), RuntimeError, "leaf")


@check(level=Level.TRAINS, hook="wait for autograd's threads at exit", timeout=120.0)
def process_ends_after_backward(device: Device) -> None:
    """A program that ends right after `backward` ends with status 0.

    Autograd's threads are still there at the end. Destructors of static objects of the backend must not run under them.
    """
    source = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
x = torch.ones(64, 64, device=device.this, requires_grad=True)
Twice.apply(x @ x).sum().backward()
kept = x.grad
"""
    for _ in range(2):
        ended = device.run(source)
        assert ended.returncode == 0, f"the process ended with {ended.returncode}: {ended.stderr[-300:]}"
