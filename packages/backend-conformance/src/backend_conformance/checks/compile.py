"""`torch.compile`: Dynamo, AOTAutograd and Inductor for tensors of the device.

Dynamo traces with fake tensors, which ask the module for `is_initialized` and `current_device`. The backends "eager"
and "aot_eager" need nothing else. Inductor needs a scheduling class, a wrapper and a device interface.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check, missing
from backend_conformance.evidence import value

INDUCTOR = "DeviceInterface; register_backend_for_device; register_device_op_overrides"


def compiled(device: Device, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    if options.get("backend", "inductor") == "inductor":
        require_inductor(device)
    return torch.compile(function, **options)


def require_inductor(device: Device) -> None:
    """Without a registration Inductor raises errors of many kinds, none of which says so."""
    import torch._inductor.compile_fx  # noqa: F401 - backends may register when it is imported
    from torch._inductor.codegen import common

    common.init_backend_registration()
    if common.get_scheduling_for_device(device.name) is None:
        missing(f"Inductor has no scheduling class for {device.name}: register_backend_for_device")


def compare(device: Device, function: Callable[..., torch.Tensor], *inputs: torch.Tensor, **options: Any) -> None:
    """Compares results and gradients of the compiled function on the device with the plain one on the CPU."""

    def outcome(call: Callable[..., torch.Tensor], where: torch.device | str) -> list[torch.Tensor]:
        moved = [each.clone().to(where).requires_grad_(each.is_floating_point()) for each in inputs]
        result = call(*moved)
        result.float().square().sum().backward()
        return [result.detach(), *(each.grad for each in moved if each.grad is not None)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = outcome(compiled(device, function, **options), device.this)
    for mine, wanted in zip(got, outcome(function, "cpu"), strict=True):
        device.cpu_equal(mine, wanted, rtol=5e-3, atol=5e-3)


@check(level=Level.COMPLETE, hook="is_initialized, current_device of the device module")
def fake_tensors_have_the_device(device: Device) -> None:
    """Fake tensors, and the results of operators on them, have the device, and no memory.

    They stand for tensors in the compiler, in `torch.export` and in FSDP.
    """
    from torch._subclasses import FakeTensorMode

    real = torch.ones(3, 4, device=device.this)
    before = torch.accelerator.current_device_index()
    with FakeTensorMode() as mode:
        x = torch.empty(1 << 20, 1 << 20, device=device.name)
        y = (x + 1).sum(0)
        assert x.device == device.this and y.device == device.this and y.shape == (1 << 20,)
        z = mode.from_tensor(real) @ torch.ones(4, 2, device=device.this)
        assert z.device == device.this and z.shape == (3, 2)
        assert torch.nn.Linear(4, 2, device=device.name)(torch.ones(1, 4, device=device.name)).device == device.this
    assert torch.accelerator.current_device_index() == before


@check(level=Level.COMPLETE, hook="fake tensors; guards of Dynamo", needs=("compile",), timeout=120.0)
def dynamo_traces_without_breaks(device: Device) -> None:
    """Dynamo traces a function on tensors of the device into one graph, and runs it again without another trace.

    Guards compare the device of the inputs.
    """
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x) + torch.ones(3, device=x.device)
        return (y * x).to(device.name).relu() if x.device.type == device.name else x

    call = compiled(device, function, backend=counter, fullgraph=True)
    for number in (1.0, 2.0, 3.0):
        assert value(call(torch.full((3,), number, device=device.this))) == number
    assert counter.frame_count == 1, f"{counter.frame_count} graphs for one function"


@check(level=Level.COMPLETE, hook="fake tensors", needs=("compile",), timeout=120.0)
def graph_breaks_keep_the_results(device: Device) -> None:
    """A function that reads values between its operators is compiled in parts, with the right result.

    `item` and branches on values of tensors break the graph.
    """

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 5:
            y = y + 1
        print(end="")
        return y.relu() * y.mean()

    compare(device, function, torch.tensor([1.0, 2.0, 3.0]), backend="eager")
    compare(device, function, torch.tensor([-1.0, 2.0, -3.0]), backend="aot_eager")


FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "pointwise": (lambda x: (x.sin() * 2 + x).relu(), (torch.linspace(-2, 2, 40),)),
    "reduction": (lambda x: x.softmax(1) * x.amax(0), (torch.linspace(-1, 1, 40).view(5, 8),)),
    "product": (
        lambda x, y: (x @ y).tanh(),
        (torch.linspace(-1, 1, 30).view(5, 6), torch.linspace(0, 1, 24).view(6, 4)),
    ),
    "views": (lambda x: x.t()[2:].reshape(-1).view(2, -1).sum(1), (torch.linspace(-1, 1, 30).view(5, 6),)),
    "indexing": (
        lambda x: x[torch.tensor([0, 2, 2], device=x.device)].cumsum(0),
        (torch.linspace(-1, 1, 30).view(5, 6),),
    ),
    "in_place": (lambda x: (x * 2).add_(1)[1:].mul_(x[:1]), (torch.linspace(-1, 1, 30).view(5, 6),)),
}


@check(level=Level.COMPLETE, hook="AOTAutograd", needs=("compile",), cases=tuple(FUNCTIONS), timeout=120.0)
def aot_eager_follows_eager(device: Device, case: str) -> None:
    """The backend "aot_eager" gives the results and gradients of the plain function.

    AOTAutograd traces forward and backward passes with fake tensors, and replaces in-place operators. It finds
    operators whose meta functions do not agree with the backend's kernels.
    """
    function, inputs = FUNCTIONS[case]
    compare(device, function, *inputs, backend="aot_eager", fullgraph=True)


@check(level=Level.COMPLETE, hook=INDUCTOR, needs=("compile",), cases=tuple(FUNCTIONS), timeout=240.0)
def inductor_follows_eager(device: Device, case: str) -> None:
    """Inductor's code for the device gives the results and gradients of the plain function.

    Without a scheduling class for the device, Inductor raises; a stock class may write code for another device.
    """
    function, inputs = FUNCTIONS[case]
    compare(device, function, *inputs, fullgraph=True)


@check(level=Level.COMPLETE, hook=INDUCTOR, needs=("compile",), timeout=240.0)
def inductor_trains_a_model(device: Device) -> None:
    """A compiled model with convolution, normalisation and dropout trains as the plain one does.

    The layers with parameters use kernels of the backend, the rest is fused.
    """

    def trained(where: torch.device | str, compile_it: bool) -> list[float]:
        torch.manual_seed(2)
        model: Any = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 3)
        ).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        call = compiled(device, model) if compile_it else model
        x, y = torch.randn(8, 1, 6, 6).to(where), torch.arange(8, device=where) % 3
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    got, wanted = trained(device.this, True), trained("cpu", False)
    assert all(abs(a - b) < 0.02 for a, b in zip(got, wanted, strict=True)), (
        f"the losses are {got}, on the CPU {wanted}"
    )


@check(level=Level.COMPLETE, hook=INDUCTOR, needs=("compile",), timeout=240.0)
def dynamic_shapes_are_compiled_once(device: Device) -> None:
    """With `dynamic=True` one compiled program serves inputs of several sizes.

    Sizes are symbols in the generated code.
    """
    torch._dynamo.utils.counters.clear()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(1) + x.shape[0]

    call = compiled(device, function, dynamic=True, fullgraph=True)
    for rows, columns in ((3, 4), (5, 7), (9, 2)):
        x = torch.ones(rows, columns)
        device.cpu_equal(call(x.to(device.this)), function(x))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 1, f"{graphs} programs were compiled"


@check(level=Level.COMPLETE, hook=INDUCTOR, needs=("compile", "several_devices"), timeout=240.0)
def compiled_code_runs_on_the_device_of_its_inputs(device: Device) -> None:
    """A compiled function whose inputs are on device 1 allocates and computes there, while device 0 is current.

    The stock wrapper allocates on a device without an index, which is the current one.
    """
    call = compiled(device, lambda x: (x + 1) * x.sum() + torch.ones(3, device=x.device), fullgraph=True)
    for where in (device.other, device.this):
        result = call(torch.full((3,), 2.0, device=where))
        assert result.device == where, f"the result is on {result.device}, not on {where}"
        assert value(result) == 19
    assert torch.accelerator.current_device_index() == 0


@check(level=Level.COMPLETE, hook="random operators in compiled code", needs=("compile",), timeout=240.0)
def compiled_random_operators_follow_the_seed(device: Device) -> None:
    """Dropout in a compiled function follows the seed, differs between calls, and is the same in the backward pass.

    Inductor saves a seed for the backward pass.
    """
    call = compiled(device, lambda x: nn.functional.dropout(x, 0.5) * 2)
    x = torch.ones(2000, device=device.this, requires_grad=True)
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        results += [call(x), call(x)]
    first, second, again, _ = (each.detach().cpu() for each in results)
    assert torch.equal(first, again), "the seed does not determine the numbers"
    assert not torch.equal(first, second), "each call drops the same elements"
    assert 0.4 < (first == 0).float().mean() < 0.6
    (gradient,) = torch.autograd.grad(results[0].sum(), x)
    device.cpu_equal(gradient, first)


@check(level=Level.COMPLETE, hook="torch._dynamo.device_interface.register_interface_for_device", needs=("compile",))
def device_interface_is_registered(device: Device) -> None:
    """Dynamo's interface for the device reports devices, streams and properties, and synchronises.

    Inductor measures, chooses and emits code through it.
    """
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device(device.name)
    assert interface is get_interface_for_device(device.this), "the device with an index has another interface"
    assert interface.is_available() and interface.device_count() == device.count
    assert interface.current_device() == 0
    interface.synchronize()
    assert interface.is_bf16_supported() in (True, False)
    if device.count > 1:
        with interface.device(1):
            assert torch.accelerator.current_device_index() == 1 == interface.current_device()
        assert interface.current_device() == 0
        previous = interface.exchange_device(1)
        assert previous == 0 and interface.current_device() == 1 and interface.maybe_exchange_device(-1) == 1
        interface.set_device(0)
    stream = interface.current_stream()
    assert isinstance(stream, torch.Stream)
    assert stream.stream_id == torch.accelerator.current_stream().stream_id
    assert isinstance(interface.get_raw_stream(0), int)
    interface.Worker.set_device(0)
    assert interface.Worker.current_device() == 0
