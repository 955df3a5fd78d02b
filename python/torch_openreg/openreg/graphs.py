"""Graphs: work that is captured once and replayed for less than its launch cost. Names as in `torch.cuda`."""

from __future__ import annotations

from .graph_capture import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .graph_hooks import (
    export_dot,
    register_graph_capture_end_hook,
    register_graph_capture_start_hook,
    register_graph_destroy_hook,
    register_graph_instantiate_hook,
    register_graph_replay_end_hook,
    register_graph_replay_start_hook,
)
from .graphed_callables import make_graphed_callables

__all__ = [
    "CUDAGraph",
    "export_dot",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
]
