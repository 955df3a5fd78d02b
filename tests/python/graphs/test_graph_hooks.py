"""Hooks of graphs: when they are called, in which order, and what happens if they raise."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

graphs = torch.openreg.graphs
MOMENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end")


@pytest.fixture
def calls() -> Iterator[list[tuple[str, Any]]]:
    """What hooks of all graphs were called with."""
    seen: list[tuple[str, Any]] = []

    def noted(moment: str) -> Callable[[Any], None]:
        return lambda graph: seen.append((moment, graph))

    handles = [getattr(graphs, f"register_graph_{moment}_hook")(noted(moment)) for moment in MOMENTS]
    yield seen
    for handle in handles:
        handle.remove()


def captured(graph: torch.openreg.CUDAGraph, stream: torch.Stream | None = None) -> torch.Tensor:
    x = torch.zeros(4, device="openreg" if stream is None else stream.device)
    with torch.openreg.graph(graph, stream=stream):
        x += 1
    return x


def test_hooks_of_all_graphs_are_called_in_the_order_of_events(calls):
    graph = torch.openreg.CUDAGraph()
    x = captured(graph)
    graph.replay()
    assert calls == [(moment, graph) for moment in MOMENTS]
    assert x.tolist() == [1] * 4


def test_a_kept_graph_is_instantiated_by_its_first_replay_before_the_replay_starts(calls):
    graph = torch.openreg.CUDAGraph(keep_graph=True)
    captured(graph)
    assert [moment for moment, _ in calls] == ["capture_start", "capture_end"]
    graph.replay()
    graph.replay()
    expected = ["instantiate", "replay_start", "replay_end", "replay_start", "replay_end"]
    assert [moment for moment, _ in calls][2:] == expected
    graph.instantiate()
    assert calls[-1] == ("instantiate", graph)


def test_an_instantiation_by_the_first_replay_is_seen_without_hooks_of_replays():
    seen: list[Any] = []
    graph = torch.openreg.CUDAGraph(keep_graph=True)
    with graphs.register_graph_instantiate_hook(seen.append):
        captured(graph)
        graph.replay()
        assert seen == [graph]
        graph.register_replay_start_hook(lambda _: None)
        graph.replay()
    assert seen == [graph]


def test_hooks_of_all_graphs_run_first_and_their_errors_are_ignored():
    graph = torch.openreg.CUDAGraph()
    x = captured(graph)
    seen: list[str] = []
    graph.register_replay_start_hook(lambda _: seen.append("own"))
    with (
        graphs.register_graph_replay_start_hook(lambda _: seen.append("all")),
        graphs.register_graph_replay_start_hook(lambda _: 1 / 0),
    ):
        graph.replay()
    assert seen == ["all", "own"]
    assert x.tolist() == [1] * 4


def test_hooks_of_one_graph_are_not_called_for_another_and_run_in_the_order_of_registration():
    one, other = torch.openreg.CUDAGraph(), torch.openreg.CUDAGraph()
    seen: list[str] = []
    for name in "ab":
        one.register_capture_start_hook(lambda graph, name=name: seen.append(f"start {name} {graph is one}"))
        one.register_capture_end_hook(lambda graph, name=name: seen.append(f"end {name}"))
        one.register_post_instantiate_hook(lambda graph, name=name: seen.append(f"instantiate {name}"))
    captured(other)
    assert seen == []
    captured(one)
    assert seen == ["start a True", "start b True", "end a", "end b", "instantiate a", "instantiate b"]


def test_work_of_a_capture_start_hook_is_captured():
    y = torch.zeros(2, device="openreg")
    graph = torch.openreg.CUDAGraph()
    graph.register_capture_start_hook(lambda _: y.add_(1))
    captured(graph)
    assert y.tolist() == [0, 0]
    graph.replay()
    assert y.tolist() == [1, 1]


@pytest.mark.filterwarnings("error")
def test_a_capture_start_hook_that_raises_ends_the_capture():
    graph = torch.openreg.CUDAGraph()
    handle = graph.register_capture_start_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        captured(graph)
    handle.remove()
    x = captured(graph)
    graph.replay()
    assert x.tolist() == [1] * 4


def test_a_removed_hook_is_not_called():
    graph = torch.openreg.CUDAGraph()
    captured(graph)
    seen: list[Any] = []
    with graph.register_replay_start_hook(seen.append):
        graph.replay()
    graph.replay()
    assert seen == [graph]


def test_a_replay_start_hook_that_raises_stops_the_replay():
    graph = torch.openreg.CUDAGraph()
    x = captured(graph)
    ends: list[Any] = []
    graph.register_replay_end_hook(ends.append)
    handle = graph.register_replay_start_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        graph.replay()
    handle.remove()
    assert (x.tolist(), ends) == ([0] * 4, [])
    graph.replay()
    assert (x.tolist(), ends) == ([1] * 4, [graph])


@pytest.mark.parametrize("keep_graph", [False, True])
def test_a_replay_end_hook_is_called_if_the_replay_fails(keep_graph):
    graph = torch.openreg.CUDAGraph(keep_graph)
    ends: list[Any] = []
    graph.register_replay_end_hook(ends.append)
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert ends == [graph]


def test_destroy_callbacks_run_once_at_reset_or_destruction_and_their_errors_are_ignored():
    gc.collect()  # graphs of other tests
    seen: list[Any] = []
    with graphs.register_graph_destroy_hook(seen.append):
        graph = torch.openreg.CUDAGraph()
        graph.register_destroy_callback(lambda: 1 / 0)
        graph.register_destroy_callback(lambda: seen.append("reset"))
        graph.reset()
        assert seen == [set(), "reset"]
        graph.register_destroy_callback(lambda: seen.append("destroyed"))
        graph.register_destroy_callback(lambda: seen.append("removed")).remove()
        del graph
        gc.collect()
    assert seen == [set(), "reset", set(), "destroyed"]


class Held:
    pass


def test_an_object_is_retained_until_the_graph_is_reset():
    graph, held = torch.openreg.CUDAGraph(), Held()
    alive = weakref.ref(held)
    graph.retain_object(held)
    del held
    gc.collect()
    assert alive() is not None
    graph.reset()
    assert alive() is None


@pytest.mark.parametrize("device", [0, 1], ids=["current device", "another device"])
def test_queued_replays_complete_before_a_synchronised_release(device):
    graph = torch.openreg.CUDAGraph()
    x = captured(graph, torch.openreg.Stream(device))
    done: list[bool] = []
    end = torch.openreg.Event()
    graph.register_destroy_callback(lambda: done.append(end.query()), synchronize_before_release=True)
    with torch.openreg.device(device):
        torch.openreg._sleep(20_000_000)
        end.record()
    graph.replay()
    graph.reset()
    assert done == [True]
    assert x.tolist() == [1] * 4


def test_a_synchronised_release_raises_the_error_of_a_replay():
    words = torch.zeros(1, dtype=torch.int64, device="openreg")
    row = torch.arange(5.0, device="openreg")
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        row.index_select(0, words)
    called: list[bool] = []
    graph.register_destroy_callback(lambda: called.append(True), synchronize_before_release=True)
    words.fill_(7)
    graph.replay()
    with pytest.raises(torch.AcceleratorError, match="index out of range"):
        graph.reset()
    assert called == [True]
    captured(graph)
    graph.replay()
    torch.accelerator.synchronize()


def test_destroy_callbacks_may_use_the_device_at_exit():
    code = """
import torch
graph, x = torch.openreg.CUDAGraph(), torch.zeros(4, device="openreg")
with torch.openreg.graph(graph):
    x += 1
graph.register_destroy_callback(lambda: print(x.tolist()), synchronize_before_release=True)
graph.replay()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("[1.0, 1.0, 1.0, 1.0]\n", "")


def test_export_dot_is_a_hook_that_writes_the_graph(tmp_path):
    path = tmp_path / "graph.dot"
    graph = torch.openreg.CUDAGraph()
    graph.register_capture_end_hook(graphs.export_dot(str(path)))
    captured(graph)
    assert "add" in path.read_text()


def test_a_hook_must_be_callable():
    with pytest.raises(TypeError, match=r"the hook is not callable \(got 3, expected a function\)"):
        torch.openreg.CUDAGraph().register_replay_start_hook(3)
