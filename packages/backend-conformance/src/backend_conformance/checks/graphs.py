"""Graphs: work of a stream that is captured once and replayed.

`torch.accelerator.Graph` works for a backend that registers an `at::GraphImplInterface`; others have a class of their
own in their module, such as `CUDAGraph`. A capture records without running; its memory belongs to the graph, so that
replays stay valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check, not_applicable
from backend_conformance.evidence import Trials, expect_error, value

CAPTURE = "at::GraphImplInterface::capture_begin, capture_end; REGISTER_GRAPH_IMPL"
REPLAY = "at::GraphImplInterface::replay; REGISTER_GRAPH_IMPL"


def new_graph(device: Device) -> Any:
    """A graph of the device; without any class of graphs, the check is not applicable."""
    try:
        return torch.accelerator.Graph()
    except AttributeError:
        pass
    except RuntimeError as error:
        if "not supported" not in str(error):
            raise
    for name in dir(device.module):
        found = getattr(device.module, name)
        if name.endswith("Graph") and hasattr(found, "capture_begin") and hasattr(found, "replay"):
            return found()
    not_applicable(f"neither torch.accelerator nor torch.{device.name} has graphs for this device")


def captured(device: Device, function: Callable[[], Any]) -> tuple[Any, Any]:
    """Captures a function on a stream of its own, after two runs that load kernels; returns the result, too."""
    graph, stream = new_graph(device), torch.Stream(device.this)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        for _ in range(2):
            function()
    torch.accelerator.synchronize()
    with stream:
        graph.capture_begin()
        try:
            result = function()
        finally:
            graph.capture_end()
    torch.accelerator.current_stream().wait_stream(stream)
    return graph, result


@check(level=Level.COMPLETE, hook=REPLAY, needs=("streams", "graphs"))
def replay_reads_new_values(device: Device) -> None:
    """A replay computes with the values that its inputs have then, and writes to the results of the capture.

    The graph keeps addresses, not values.
    """
    x = torch.arange(6.0, device=device.this)
    graph, y = captured(device, lambda: (x * 2 + 1).view(2, 3).sum(1))
    for start in (0.0, 10.0, -5.0):
        x.copy_(torch.arange(6.0) + start)
        graph.replay()
        device.cpu_equal(y, ((torch.arange(6.0) + start) * 2 + 1).view(2, 3).sum(1))


@check(level=Level.COMPLETE, hook=CAPTURE, needs=("streams", "graphs"))
def capture_does_not_run(device: Device) -> None:
    """A capture records its operations without running them; each replay runs them once.

    The check counts with an in-place addition.
    """
    counter = torch.zeros(3, device=device.this)
    graph, _ = captured(device, lambda: counter.add_(1))
    assert value(counter) == 2, f"after two runs and a capture the counter is {value(counter)}"
    for _ in range(3):
        graph.replay()
    assert value(counter) == 5, f"after two runs and three replays the counter is {value(counter)}"


@check(level=Level.COMPLETE, hook=REPLAY, needs=("streams", "graphs"))
def replay_is_ordered_on_the_current_stream(device: Device) -> None:
    """A replay follows earlier work of the current stream, and precedes later work; it does not block the host.

    The stream of the replay is the current one, not that of the capture.
    """
    x = torch.zeros(1 << 14, device=device.this)
    graph, y = captured(device, lambda: x * 3)
    stream = torch.Stream(device.this)
    result = torch.zeros_like(x)
    torch.accelerator.synchronize()
    trials = Trials(device, stream)
    for number in trials:
        with stream:
            x.fill_(number)
            graph.replay()
            result.copy_(y)
            x.fill_(-1)
        trials.ahead()
        stream.synchronize()
        assert value(result) == 3 * number, f"the result is {value(result)}, not {3 * number}"


@check(level=Level.COMPLETE, hook="at::GraphImplInterface::capture_begin: use its pool", needs=("streams", "graphs"))
def graph_keeps_its_memory(device: Device) -> None:
    """Tensors that are made after the capture do not get the memory of the graph's temporary tensors.

    The allocator takes the memory of a capture from a pool that the graph owns. Memory from the ordinary cache would be
    overwritten by replays, or would overwrite them.
    """
    x = torch.ones(1 << 16, device=device.this)
    graph, y = captured(device, lambda: ((x + 1) * 2 - x) / (x + 2))
    others = [torch.full((1 << 16,), float(number), device=device.this) for number in range(16)]
    for number in range(1, 4):
        x.fill_(number)
        graph.replay()
        others.append(torch.full((1 << 16,), float(16 + number - 1), device=device.this))
        assert abs(value(y) - 1.0) < 1e-6, f"the replay computed {value(y)}, not 1"
    wrong_ones = [number for number, each in enumerate(others) if value(each) != number]
    assert not wrong_ones, f"replays overwrote the tensors {wrong_ones}"


@check(
    level=Level.COMPLETE, hook="at::GraphImplInterface::replay: go on with random numbers", needs=("streams", "graphs")
)
def replays_draw_new_numbers(device: Device) -> None:
    """Each replay of a random operator draws other numbers, and the seed determines them.

    Random kernels read seed and offset from memory that each replay writes.
    """
    graph, y = captured(device, lambda: torch.rand(1000, device=device.this))
    seen = []
    for _ in range(2):
        torch.manual_seed(3)
        for _ in range(2):
            graph.replay()
            seen.append(y.cpu())
    assert not torch.equal(seen[0], seen[1]), "each replay draws the same numbers"
    assert torch.equal(seen[0], seen[2]) and torch.equal(seen[1], seen[3]), "the seed does not determine the numbers"
    assert 0.4 < seen[0].mean() < 0.6 and 0 <= seen[0].min() and seen[0].max() < 1


@check(level=Level.COMPLETE, hook=CAPTURE, needs=("streams", "graphs"))
def training_steps_are_captured(device: Device) -> None:
    """A whole training step, with backward pass and optimizer, trains when it is replayed.

    Autograd runs the backward pass on the stream of the forward pass, so that it is captured, too.
    """

    def trained(where: torch.device | str, by_graph: bool) -> torch.Tensor:
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.linspace(-1, 1, 24, device=where).view(6, 4)
        y = x.sum(1, keepdim=True)

        def step() -> Any:
            optimizer.zero_grad(set_to_none=False)
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        if by_graph:
            graph, _ = captured(device, step)  # two steps
            for _ in range(6):
                graph.replay()
        else:
            for _ in range(8):
                step()
        return torch.cat([each.detach().flatten() for each in model.parameters()])

    device.cpu_equal(trained(device.this, True), trained("cpu", False), rtol=5e-3, atol=5e-3)


@check(level=Level.COMPLETE, hook="isStreamCapturing, record, block", needs=("streams", "graphs"))
def other_streams_join_the_capture(device: Device) -> None:
    """A stream that waits for the capturing one takes part in the capture, until that one waits for it.

    Events carry the capture from stream to stream.
    """
    x = torch.ones(1000, device=device.this)
    other = torch.Stream(device.this)

    def function() -> torch.Tensor:
        stream = torch.accelerator.current_stream()
        y = x * 2
        other.wait_stream(stream)
        with other:
            z = y + 1
        w = y * 10
        stream.wait_stream(other)
        return z + w

    graph, result = captured(device, function)
    for number in (1, 4):
        x.fill_(number)
        graph.replay()
        assert value(result) == 22 * number + 1, f"the replay computed {value(result)}, not {22 * number + 1}"


@check(level=Level.COMPLETE, hook="waits during a capture", needs=("streams", "graphs"), alone=True)
def waiting_during_a_capture_is_refused(device: Device) -> None:
    """Reading a value during a capture raises: nothing has been computed.

    A wait would never end, and the value would be that of before the capture.
    """
    x = torch.ones(3, device=device.this)

    def function() -> torch.Tensor:
        y = x * 2
        if torch.accelerator.current_stream() != default and len(runs) == 2:
            y.sum().item()
        runs.append(1)
        return y

    default = torch.accelerator.current_stream()
    runs: list[int] = []
    expect_error(lambda: captured(device, function), Exception)


@check(level=Level.COMPLETE, hook="DeviceGuardImplInterface::isStreamCapturing", needs=("streams", "graphs"))
def streams_tell_whether_they_are_captured(device: Device) -> None:
    """`Stream.is_capturing` is True for the capturing stream during the capture only.

    PyTorch asks it before it waits or frees memory.
    """
    if not hasattr(torch.Stream, "is_capturing"):
        not_applicable("this version of torch does not have it")
    x = torch.ones(3, device=device.this)
    seen: list[bool] = []

    def function() -> torch.Tensor:
        seen.append(torch.accelerator.current_stream().is_capturing())
        return x * 2

    captured(device, function)
    assert seen == [False, False, True], f"before, before and during the capture: {seen}"
    assert not torch.accelerator.current_stream().is_capturing()


@check(level=Level.COMPLETE, hook="at::GraphImplInterface::reset, pool", needs=("streams", "graphs"))
def graphs_are_reset_and_share_a_pool(device: Device) -> None:
    """A graph is freed by `reset` and captured again, and two graphs of one pool run in the order of their captures.

    Models are captured in parts, which share their memory.
    """
    x = torch.ones(100, device=device.this)
    graph, _ = captured(device, lambda: x * 2)
    assert len(tuple(graph.pool())) == 2
    graph.reset()
    torch.accelerator.synchronize()
    stream = torch.Stream(device.this)
    with stream:
        graph.capture_begin()
        y = x * 5
        graph.capture_end()
    torch.accelerator.current_stream().wait_stream(stream)
    x.fill_(3)
    graph.replay()
    assert value(y) == 15, f"the second capture computed {value(y)}, not 15"
