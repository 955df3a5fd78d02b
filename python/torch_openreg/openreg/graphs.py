"""Graphs: work that is captured once and run many times, for less than it costs to launch it. Names of `torch.cuda`."""

from __future__ import annotations

from .graph_capture import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .graphed_callables import make_graphed_callables

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]
