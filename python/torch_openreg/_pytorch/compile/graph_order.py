"""Operations that order work keep their place in traced graphs.

Recording an event, waiting for one, synchronizing, an operator with an effect and without tensors: nothing that such an
operation reads or writes tells PyTorch's passes what precedes it. Each is a barrier: no value moves across it, and no
two computations on both sides of it become one. `inductor.kernel_order` continues this in Inductor.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ... import openreg
from .graph_streams import stream_of

# Namespaces of operators whose effects are all in their arguments and results.
_WITHOUT_EFFECTS = frozenset({"aten", "prims", "prim", "inductor", "rngprims", "profiler"})

# What may make another stream, or the host, read what the program has written.
_SYNCHRONIZES = ("synchronize_event", "synchronize_device", "synchronize_stream")
_LETS_OTHERS_READ = frozenset(
    f"streams::{name}" for name in ("record_event", "wait_event", "wait_stream", *_SYNCHRONIZES)
)


def orders_streams(node: torch.fx.Node) -> bool:
    """Whether the node is an operation on streams, events or devices."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "streams"


def is_barrier(node: torch.fx.Node) -> bool:
    """Whether the node orders work without a value that expresses the order."""
    target = node.target
    if target is torch.ops.higher_order.with_effects or orders_streams(node):
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _WITHOUT_EFFECTS:
        return False
    return not any(_is_tensor(leaf) for leaf in (node, *node.all_input_nodes))


def _is_tensor(node: torch.fx.Node) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(node.meta.get("val")))


def run_methods_of_streams(eval_frame: ModuleType) -> None:
    """Runs methods of streams untraced if a graph ends before their call. Dynamo has variables of its own for streams,
    and it cannot trace `super()` of a stream."""
    for method in (openreg.Stream.__new__, openreg.Stream.wait_event, openreg.Stream.wait_stream):
        eval_frame.skip_code(method.__code__)


def break_graphs_after_mutations(output_graph: ModuleType) -> None:
    """Ends a graph that has changed an input before an operation on streams.

    A traced graph changes its inputs at its end, so the operation would precede the change. PyTorch itself raises an
    error if an event is recorded on the stream of the change.
    """
    from torch._dynamo.exc import unimplemented

    original = output_graph.OutputGraph.create_proxy

    @functools.wraps(original)
    def create_proxy(self: Any, kind: str, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Proxy:
        if _follows_changes(target, args) and self.root_tracer.has_input_mutation().has_mutation:
            unimplemented(
                gb_type="Stream operation after an input mutation",
                context=str(target),
                explanation="openreg: a graph mutates inputs at its end, so the operation would precede the mutation.",
                hints=["Move the operation before the mutation, or out of the compiled function."],
            )
        proxy: torch.fx.Proxy = original(self, kind, target, *args, **kwargs)
        return proxy

    output_graph.OutputGraph.create_proxy = create_proxy


def _follows_changes(target: Any, arguments: Any) -> bool:
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name in _LETS_OTHERS_READ
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _WITHOUT_EFFECTS or target._schema.returns:
        return False
    return not any(isinstance(leaf, torch.fx.Proxy) for leaf in tree_leaves(arguments))


def keep_order_of_joint_graphs(graph_capture: ModuleType) -> None:
    """Keeps barriers in their pass, forward or backward, and between the same nodes."""

    # PyTorch would give each operation on streams some of the values before it as arguments, for the nodes after it to
    # use. Which ones depends on PyTorch's version; inputs of the graph are left out; the partitioner of 2.13 fails.
    @functools.wraps(graph_capture.wrap_all_sync_nodes_with_control_deps)
    def assign_passes(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and is_barrier(node):
                backward = any(_is_of_backward(each) for each in (node, *node.all_input_nodes))
                node.meta["partitioner_tag"] = "must_be_in_backward" if backward else "must_be_in_forward"

    graph_capture.wrap_all_sync_nodes_with_control_deps = assign_passes  # type: ignore[attr-defined]


def leave_waits_to_programs(graph_capture: ModuleType) -> None:
    """Leaves the waits of backward passes to `inductor.waits`, which writes them with the programs.

    PyTorch would add them to the graph: with events that it registers with Dynamo as it traces, so a program that comes
    from the cache, without being traced, would not find them; and not for values that are computed again.
    """

    def leave(module: torch.fx.GraphModule) -> None:
        pass

    for name in ("insert_backward_syncs", "sync_deallocations"):
        if hasattr(graph_capture, name):
            setattr(graph_capture, name, functools.wraps(getattr(graph_capture, name))(leave))


def _is_of_backward(node: torch.fx.Node) -> bool:
    return node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward")


def keep_order_of_patterns(pattern_matcher: ModuleType) -> None:
    """Makes barriers count as changes of memory, between two of which PyTorch's passes move, match and merge nodes.

    Equal nodes of two streams are not merged: without a wait, the value that one stream computes is not ready for the
    other. PyTorch 2.13 would merge them when it partitions a graph for training.
    """
    original = pattern_matcher.is_mutation_op
    same_regions = pattern_matcher.same_mutation_regions

    @functools.wraps(original)
    def is_mutation_op(node: torch.fx.Node) -> bool:
        return (node.op == "call_function" and is_barrier(node)) or original(node)

    @functools.wraps(same_regions)
    def same_mutation_regions(first: torch.fx.Node, second: torch.fx.Node) -> bool:
        return stream_of(first) == stream_of(second) and same_regions(first, second)

    pattern_matcher.is_mutation_op = is_mutation_op  # type: ignore[attr-defined]
    pattern_matcher.same_mutation_regions = same_mutation_regions  # type: ignore[attr-defined]
