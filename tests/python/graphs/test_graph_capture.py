"""Capture: what becomes a graph, what cannot, and how streams are afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

openreg = torch.openreg
WAITS = "operation not permitted when stream is capturing"


def numbers(count: int = 8) -> torch.Tensor:
    return torch.arange(float(count), device="openreg")


def fails_to_capture(work: Callable[[], Any], match: str = WAITS, mode: str = "global") -> str:
    """Captures `work`, which raises; then neither the stream nor the graph is any the worse. What was raised."""
    graph, x = openreg.CUDAGraph(), numbers()
    stream = openreg.Stream()
    openreg.synchronize()
    with pytest.raises(RuntimeError, match=match) as raised:
        with openreg.graph(graph, stream=stream, capture_error_mode=mode):
            y = x + 1
            work()
            y += 1
    assert not stream.is_capturing() and not openreg.is_current_stream_capturing()
    with stream:
        assert (x * 2).sum().item() == 56.0
    graph.reset()  # an error of another kind leaves a graph of what came before it
    with openreg.graph(graph, stream=stream):
        y = x + 1
    graph.replay()
    assert y.tolist() == (x + 1).tolist()
    return str(raised.value)


def test_the_accelerators_graph_is_the_same():
    x = numbers()
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        assert openreg.is_current_stream_capturing()
        y = x * 2
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value] * 8
    graph.reset()
    graph.capture_error_mode, graph.graph_pool = "relaxed", openreg.graph_pool_handle()
    with torch.Stream(), graph:
        y = x * 3
    assert tuple(graph.pool()) == tuple(graph.graph_pool)
    graph.replay()
    assert y.tolist() == [15.0] * 8


@pytest.mark.parametrize("mode", ["default", "global", "thread_local", "relaxed"])
def test_the_accelerators_graph_takes_every_mode(mode):
    x = numbers()
    graph = torch.accelerator.Graph(capture_error_mode=mode)
    with torch.Stream(), graph:
        x += 1
    graph.replay()
    assert x[0].item() == 1.0


def test_streams_say_whether_they_are_captured():
    stream, other = openreg.Stream(), openreg.Stream()
    assert not stream.is_capturing()
    with openreg.graph(openreg.CUDAGraph(), stream=stream):
        assert stream.is_capturing() and not other.is_capturing()
        assert openreg.is_current_stream_capturing()
        with other:
            assert not openreg.is_current_stream_capturing()
            other.wait_stream(stream)
            assert openreg.is_current_stream_capturing()
        stream.wait_stream(other)
        numbers().add_(1)
    assert not stream.is_capturing() and not other.is_capturing()


def test_a_graph_that_is_kept_is_instantiated_when_it_is_asked_to_or_first_replayed():
    x = numbers()
    for instantiate in (True, False):
        graph = openreg.CUDAGraph(keep_graph=True)
        with openreg.graph(graph):
            y = x + 1
        if instantiate:
            graph.instantiate()
            graph.instantiate()
        graph.replay()
        graph.replay()
        assert y.tolist() == (x + 1).tolist()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = x + 1
    with pytest.raises(RuntimeError, match="keep_graph=True"):
        graph.instantiate()


def test_a_graph_captures_once_until_it_is_reset():
    x = numbers()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = x + 1
    with pytest.raises(RuntimeError, match="already owns a captured graph"), openreg.graph(graph):
        pass
    assert not openreg.is_current_stream_capturing()
    graph.replay()
    graph.reset()
    with pytest.raises(RuntimeError, match=r"replay\(\) without a preceding successful capture"):
        graph.replay()
    with openreg.graph(graph):
        z = x + 2
    graph.replay()
    assert z.tolist() == (x + 2).tolist()
    del y


@pytest.mark.parametrize("call", ["replay", "instantiate", "capture_end", "pool"])
def test_calls_that_need_a_capture_raise_without_one(call):
    with pytest.raises(RuntimeError, match=r"openreg: .*capture_begin\(\)"):
        getattr(openreg.CUDAGraph(), call)()


def test_the_default_stream_is_not_captured():
    graph = openreg.CUDAGraph()
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    assert not openreg.is_current_stream_capturing()


def test_a_capture_ends_on_its_own_stream():
    x, graph = numbers(), openreg.CUDAGraph()
    with openreg.Stream():
        graph.capture_begin()
        y = x + 1
        with openreg.Stream(), pytest.raises(RuntimeError, match="must end on the same stream"):
            graph.capture_end()
        y += 1
        graph.capture_end()
    graph.replay()
    assert y.tolist() == (x + 2).tolist()


def test_a_second_capture_of_the_stream_is_an_error():
    def second() -> None:
        openreg.CUDAGraph().capture_begin()

    fails_to_capture(second)


def test_an_empty_graph_warns_and_can_be_replayed():
    graph = openreg.CUDAGraph()
    with pytest.warns(UserWarning, match="captured graph is empty"), openreg.graph(graph):
        pass
    graph.replay()
    openreg.synchronize()


def test_an_error_inside_is_the_error_that_is_raised():
    fails_to_capture(lambda: torch.ones(2, device="openreg") @ torch.ones(3, device="openreg"), "inconsistent tensor")
    with pytest.raises(KeyError):
        with openreg.graph(openreg.CUDAGraph()):
            raise KeyError
    assert not openreg.is_current_stream_capturing()


# --- What the host would have to wait for ---

WAITING: dict[str, Callable[[], Any]] = {
    "aten::_local_scalar_dense": lambda: numbers().sum().item(),
    "aten::nonzero": lambda: numbers().nonzero(),
    "aten::masked_select": lambda: numbers().masked_select(numbers() > 2),
    "aten::_unique2": lambda: numbers().unique(),
    "aten::equal": lambda: torch.equal(numbers(), numbers()),
    "aten::bincount": lambda: numbers().long().bincount(),
    "copy": lambda: numbers().cpu(),
    "copy ": lambda: numbers().copy_(torch.ones(8)),
    "copy  ": lambda: torch.tensor([1.0, 2.0], device="openreg"),
    "ynchronize": lambda: torch.accelerator.current_stream().synchronize(),
    "ynchronize ": lambda: openreg.synchronize(),
    "query": lambda: torch.accelerator.current_stream().query(),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_makes_the_host_wait_raises_at_the_call_with_its_name(name):
    assert name.strip() in fails_to_capture(WAITING[name])


def test_what_a_captured_stream_is_asked_raises_in_the_relaxed_mode_too():
    fails_to_capture(lambda: torch.accelerator.current_stream().synchronize(), mode="relaxed")
    fails_to_capture(lambda: numbers().sum().item(), mode="relaxed")


def test_custom_operators_with_a_kernel_of_the_cpu_cannot_be_captured():
    library = torch.library.Library("graph_capture_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    said = fails_to_capture(lambda: torch.ops.graph_capture_test.twice(numbers()))
    assert "graph_capture_test::twice" in said


def test_events_of_a_capture_cannot_be_waited_for_or_asked():
    for ask in (torch.Event.query, torch.Event.synchronize):
        fails_to_capture(lambda ask=ask: ask(torch.accelerator.current_stream().record_event()), "captur")
    timed = openreg.Event(enable_timing=True)
    timed.record()
    timed.synchronize()

    def elapsed() -> None:
        inside = openreg.Event(enable_timing=True)
        inside.record()
        timed.elapsed_time(inside)

    fails_to_capture(elapsed, "captur")


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")
def test_a_wait_out_of_a_backward_pass_raises_and_leaves_the_stream_usable():
    class Waits(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * gradient.sum().item()

    x = numbers().requires_grad_()
    assert "aten::_local_scalar_dense" in fails_to_capture(lambda: Waits.apply(x).sum().backward())
    Waits.apply(x).sum().backward()
    assert x.grad.tolist() == [8.0] * 8


def test_errors_name_the_line_of_python_if_they_are_asked_to(run_python):
    run_python(
        """
        import torch
        x = torch.ones(3, device="openreg")
        try:
            with torch.openreg.graph(torch.openreg.CUDAGraph()):
                x.add_(1)
                x.sum().item()
        except RuntimeError as error:
            assert "aten::_local_scalar_dense" in str(error) and "<string>:7" in str(error), error
        else:
            raise AssertionError
        """.replace("\n        ", "\n"),
        TORCH_OPENREG_STACKS="1",
    )


# --- Several streams ---


def test_streams_that_events_fork_and_join_become_one_graph():
    x = numbers()
    graph, side, third = openreg.CUDAGraph(), openreg.Stream(), openreg.Stream(priority=-1)
    with openreg.graph(graph):
        a = x + 1
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            b = a * 10
            third.wait_event(side.record_event())
            with third:
                c = b - a
            side.wait_stream(third)
            d = b + c
        e = a * 100
        torch.accelerator.current_stream().wait_stream(side)
        f = d + e
    for value in (1.0, 2.0, 3.0, 4.0):
        x.fill_(value)
        graph.replay()
        y = value + 1
        assert f.tolist() == [y * 10 + (y * 10 - y) + y * 100] * 8


def test_a_graph_is_dumped_with_its_edges(tmp_path):
    x, side = numbers(), openreg.Stream()
    graph = openreg.CUDAGraph()
    graph.enable_debug_mode()
    with openreg.graph(graph):
        a = x.exp()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            b = a.sin()
        c = a.cos()
        torch.accelerator.current_stream().wait_stream(side)
        d = b + c
    graph.debug_dump(tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    edges = sorted(line.strip() for line in text.splitlines() if "->" in line)
    assert edges == ["n0 -> n1;", "n0 -> n2;", "n1 -> n3;", "n2 -> n3;"]
    for number, name in enumerate(("aten::exp", "aten::sin", "aten::cos", "aten::add")):
        assert f"{number}: {name}" in text
    graph.replay()
    assert torch.equal(d, x.exp().sin() + x.exp().cos())


def test_a_dump_without_debugging_warns_and_one_to_nowhere_raises(tmp_path):
    x, graph = numbers(), openreg.CUDAGraph()
    with openreg.graph(graph):
        x += 1
    with pytest.warns(UserWarning, match="enable_debug_mode"):
        graph.debug_dump(str(tmp_path / "graph.dot"))
    assert not (tmp_path / "graph.dot").exists()
    graph.enable_debug_mode()
    with pytest.raises(RuntimeError, match="could not be written"):
        graph.debug_dump("/nowhere/graph.dot")


def test_a_stream_that_is_not_joined_is_an_error_at_the_end():
    x, side = numbers(), openreg.Stream()
    graph = openreg.CUDAGraph()
    with pytest.raises(RuntimeError, match=r"unjoined work \(aten::mul"):
        with openreg.graph(graph):
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                y = x * 2
    assert not side.is_capturing()
    openreg.synchronize()
    with side:
        assert (x * 2).sum().item() == 56.0
    del y


def test_a_wait_for_an_event_of_before_is_an_error():
    other = openreg.Stream()
    with other:
        event = other.record_event()
    fails_to_capture(
        lambda: torch.accelerator.current_stream().wait_event(event), "dependency created on uncaptured work"
    )


def test_captures_do_not_merge():
    x = numbers()
    openreg.synchronize()
    first, second = openreg.Stream(), openreg.Stream()
    one, two = openreg.CUDAGraph(), openreg.CUDAGraph()
    with first:
        one.capture_begin(capture_error_mode="relaxed")
        y = x + 1
        event = first.record_event()
    with second:
        two.capture_begin(capture_error_mode="relaxed")
        z = x + 2
        with pytest.raises(RuntimeError, match="merge of separate capture sequences"):
            second.wait_event(event)
        two.reset()
    with first, pytest.raises(RuntimeError, match="previous error during capture"):
        one.capture_end()
    with second:
        assert x.sum().item() == 28.0
    del y, z


def test_two_captures_run_concurrently():
    x = numbers()
    streams, graphs, results = [openreg.Stream(), openreg.Stream()], [], []
    for stream in streams:
        graphs.append(openreg.CUDAGraph())
        with stream:
            graphs[-1].capture_begin(capture_error_mode="relaxed")
    for number, stream in enumerate(streams):
        with stream:
            results.append(x + number)
    for graph, stream in zip(graphs, streams, strict=True):
        with stream:
            graph.capture_end()
    for number, graph in enumerate(graphs):
        graph.replay()
        assert results[number].tolist() == (x + number).tolist()


def test_a_graph_is_captured_as_a_part_of_another():
    x = numbers()
    inner, outer = openreg.CUDAGraph(), openreg.CUDAGraph()
    with openreg.graph(inner):
        y = x + 1
    with openreg.graph(outer):
        a = x * 2
        inner.replay()
        b = y * a
    for value in (1.0, 2.0, 3.0, 4.0):
        x.fill_(value)
        outer.replay()
        assert b.tolist() == [(value + 1) * 2 * value] * 8


# --- Threads ---


def in_thread(work: Callable[[], Any]) -> Exception | None:
    """What another thread raises."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_other_threads_launch_and_wait_while_a_stream_is_captured(mode):
    x, graph = numbers(), openreg.CUDAGraph()
    seen: list[float] = []

    def work() -> None:
        with openreg.Stream():
            seen.append((torch.ones(4, device="openreg") + 1).sum().item())
            torch.accelerator.current_stream().synchronize()

    with openreg.graph(graph, capture_error_mode=mode):
        y = x + 1
        error = in_thread(work)
        y += 1
    assert error is None and seen == [8.0]
    graph.replay()
    assert y.tolist() == (x + 2).tolist()


def test_waits_of_other_threads_spoil_a_capture_that_is_global():
    x, graph, other = numbers(), openreg.CUDAGraph(), openreg.Stream()
    with pytest.raises(RuntimeError, match="previous error during capture"):
        with openreg.graph(graph, capture_error_mode="global"):
            y = x + 1
            error = in_thread(other.synchronize)
    assert WAITS in str(error) and "in another thread" in str(error)
    assert in_thread(other.synchronize) is None
    del y


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_wait_for_a_device_with_a_captured_stream_is_an_error_in_every_thread(mode):
    graph = openreg.CUDAGraph()
    with pytest.raises(torch.AcceleratorError, match="previous error during capture"):
        with openreg.graph(graph, capture_error_mode=mode):
            error = in_thread(openreg.synchronize)
    assert WAITS in str(error) and isinstance(error, torch.AcceleratorError)
    assert in_thread(openreg.synchronize) is None


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_a_capture_ends_in_its_own_thread(mode):
    x, graph, stream = numbers(), openreg.CUDAGraph(), openreg.Stream()

    def end() -> None:
        with stream:
            graph.capture_end()

    with stream:
        graph.capture_begin(capture_error_mode=mode)
        y = x + 1
        assert "from another thread" in str(in_thread(end))
        graph.capture_end()
    graph.replay()
    assert y.tolist() == (x + 1).tolist()


def test_a_relaxed_capture_ends_in_any_thread():
    x, graph, stream = numbers(), openreg.CUDAGraph(), openreg.Stream()

    def end() -> None:
        with stream:
            graph.capture_end()

    with stream:
        graph.capture_begin(capture_error_mode="relaxed")
        y = x + 1
    assert in_thread(end) is None
    graph.replay()
    assert y.tolist() == (x + 1).tolist()


def test_a_graph_that_is_dropped_while_it_captures_leaves_the_stream_usable():
    x, stream = numbers(), openreg.Stream()
    openreg.synchronize()
    with stream:
        graph = openreg.CUDAGraph()
        graph.capture_begin()
        y = x + 1
        del graph
        gc.collect()
        assert not stream.is_capturing()
        assert (x + 1).sum().item() == 36.0
    del y


# --- Modes ---


def test_capture_within_the_modes_of_pytorch():
    x = numbers()
    openreg.set_sync_debug_mode("error")
    torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode():
            graph = openreg.CUDAGraph()
            with openreg.graph(graph):
                y = torch.cumsum(x, 0).index_add_(0, x.long(), x)
            graph.replay()
            openreg.set_sync_debug_mode("default")
            assert y.tolist() == (x.cumsum(0) + x).tolist()
    finally:
        openreg.set_sync_debug_mode("default")
        torch.use_deterministic_algorithms(False)


def test_a_graph_of_the_second_device():
    with openreg.device(1):
        x = torch.ones(4, device="openreg:1")
        graph = openreg.CUDAGraph()
        with openreg.graph(graph, stream=openreg.Stream(1)):
            y = x * 3
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        graph.replay()  # on its own device, whichever is current
        assert y.device == torch.device("openreg:1") and y.tolist() == [3 * value] * 4


def test_the_default_stream_of_captures_is_one_of_the_current_device():
    streams = []
    for device in (0, 1, 0):
        with openreg.device(device):
            x = torch.ones(4, device="openreg")
            graph = openreg.CUDAGraph()
            with openreg.graph(graph):
                streams.append(torch.accelerator.current_stream())
                y = x * 3
        x.fill_(2)
        graph.replay()
        assert y.device.index == device and y.tolist() == [6] * 4
    assert streams[0] == streams[2] and [stream.device_index for stream in streams] == [0, 1, 0]


def test_a_graph_over_both_devices():
    x = numbers()
    there = openreg.Stream(1)
    y = torch.zeros(8, device="openreg:1")
    openreg.synchronize(1)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        a = x + 1
        here = torch.accelerator.current_stream()
        there.wait_stream(here)
        with there:
            y.copy_(a, non_blocking=True)
            y *= 2
        here.wait_stream(there)
        b = a + y.to("openreg:0", non_blocking=True)
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert b.tolist() == [3 * (value + 1)] * 8


def test_blocking_launches(run_python):
    run_python(
        """
        import torch
        x = torch.arange(4.0, device="openreg")
        graph = torch.openreg.CUDAGraph()
        with torch.openreg.graph(graph):
            y = x.exp() + 1
        for value in (1.0, 2.0, 3.0, 4.0):
            x.fill_(value)
            graph.replay()
            assert torch.openreg.current_stream().query()
            assert torch.equal(y, x.exp() + 1)
        """.replace("\n        ", "\n"),
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )
