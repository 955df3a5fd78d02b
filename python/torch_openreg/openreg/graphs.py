"""Graphs: work that is captured once and replayed for less than its launch cost. Names as in `torch.cuda`."""

from __future__ import annotations

from .graph_capture import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .graphed_callables import make_graphed_callables

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]
