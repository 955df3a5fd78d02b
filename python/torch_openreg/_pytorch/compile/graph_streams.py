"""Streams of compiled programs: which of them each node of a graph runs on, and which objects they are at a call.

Dynamo notes the stream of each node, if it is not the current one, as the number of an object. The program finds the
object in a table that each call fills (`torch._dynamo.graph_bytecode_inputs`).
"""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

# Operators that draw random numbers for another operator, or again.
_DRAWING = ("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state")


def stream_of(node: torch.fx.Node) -> int | None:
    """The node's stream, as the program names it: `torch._functorch._aot_autograd.streams` notes it for each node."""
    stream: int | None = (node.meta.get("custom") or {}).get("stream")
    return stream


def set_stream(node: torch.fx.Node, stream: int | None) -> None:
    """Moves a node that a pass has made to the stream of those that it stands for."""
    custom = {key: value for key, value in (node.meta.get("custom") or {}).items() if key != "stream"}
    node.meta["custom"] = custom if stream is None else {**custom, "stream": stream}


def draw_on_the_same_stream(partitioners: ModuleType) -> None:
    """Gives new nodes of checkpoints that draw random numbers the stream of those that they replace."""
    original = partitioners.functionalize_rng_ops

    @functools.wraps(original)
    def functionalize_rng_ops(
        joint: torch.fx.GraphModule, forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, *args: Any
    ) -> Any:
        drawn = [(module, list(module.graph.nodes)) for module in (forward, backward)]
        result = original(joint, forward, backward, *args)
        for module, before in drawn:
            remaining = set(module.graph.nodes)
            replaced = [node for node in before if node not in remaining and _draws(node.target)]
            made = [node for node in module.graph.nodes if node not in set(before) and _draws_for_another(node.target)]
            # Each new node is where the old one was.
            for node, old in zip(made, replaced, strict=True):
                set_stream(node, stream_of(old))
        return result

    partitioners.functionalize_rng_ops = functionalize_rng_ops  # type: ignore[attr-defined]


def _draws(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _draws_for_another(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in _DRAWING


def draw_seeds_on_each_stream(replace_random: ModuleType) -> None:
    """Makes Inductor draw seeds on each stream that uses them. It would draw all of a program on the current stream,
    for which no other stream waits."""
    original = replace_random.fuse_seed_creation_pass
    draw, look_up = torch._inductor.inductor_prims.seeds, torch._inductor.inductor_prims.lookup_seed

    @functools.wraps(original)
    def fuse_seed_creation_pass(graph: torch.fx.Graph) -> Any:
        result = original(graph)
        for seeds in graph.find_nodes(op="call_function", target=draw):
            of_streams: dict[int | None, list[torch.fx.Node]] = defaultdict(list)
            for user in sorted(seeds.users):
                if user.target is look_up:
                    of_streams[stream_of(user)].append(user)
            if set(of_streams) <= {None}:
                continue
            for stream, users in of_streams.items():
                _draw_before(seeds, users, stream)
            graph.erase_node(seeds)
        return result

    replace_random.fuse_seed_creation_pass = fuse_seed_creation_pass  # type: ignore[attr-defined]


def _draw_before(seeds: torch.fx.Node, users: list[torch.fx.Node], stream: int | None) -> None:
    """Draws seeds for some of the nodes that look them up, on their stream."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    graph = seeds.graph
    with graph.inserting_before(users[0]):
        drawn = graph.node_copy(seeds)
    drawn.args = (len(users), *seeds.args[1:])
    drawn.meta["val"] = seeds.meta["val"][: len(users)]
    drawn.meta["tensor_meta"] = _extract_tensor_metadata(drawn.meta["val"])
    set_stream(drawn, stream)
    for index, user in enumerate(users):
        user.args = (drawn, index)


def find_the_current_stream(streams: ModuleType) -> None:
    """Makes programs find the current stream as object 0. PyTorch registers it once more as it traces a backward pass,
    and a program that comes from the cache, without being traced, would not find it."""
    from torch._dynamo import graph_bytecode_inputs

    current: int | None = getattr(graph_bytecode_inputs, "CURRENT_STREAM_INDEX", None)
    if current is None:
        return

    def get_stream_or_current_stream(node: torch.fx.Node) -> int:
        stream = stream_of(node)
        return current if stream is None else stream

    streams.get_stream_or_current_stream = get_stream_or_current_stream  # type: ignore[attr-defined]


def add_to_keys_of_programs(codecache: ModuleType) -> None:
    """Adds the streams of nodes to the cache keys of programs, which have only the text and the numbers it uses."""
    details = codecache.FxGraphHashDetails
    original = details.__init__

    @functools.wraps(original)
    def __init__(self: Any, gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> None:
        original(self, gm, *args, **kwargs)
        self.openreg_streams = list(_streams(gm))

    details.__init__ = __init__


def _streams(module: torch.fx.GraphModule) -> Iterator[tuple[str, int, int]]:
    for name, each in module.named_modules():
        if isinstance(each, torch.fx.GraphModule):
            for index, node in enumerate(each.graph.nodes):
                stream = stream_of(node)
                if stream is not None:
                    yield name, index, stream


def keep_streams_for_backward(runtime_wrappers: ModuleType) -> None:
    """Makes a backward pass find the streams and events of its forward pass. Other programs may have been called, or
    compiled, in between, and have filled the table with their own."""
    factory = getattr(runtime_wrappers, "_AOTDispatchAutogradFunctionFactory", None)
    if factory is None:
        return
    original = factory.build

    @functools.wraps(original)
    def build(self: Any) -> Any:
        function = original(self)
        forward, backward = function.forward, function._backward_impl

        @functools.wraps(forward)
        def forward_keeping_streams(ctx: Any, *args: Any) -> Any:
            ctx.openreg_objects = _Objects()
            results = forward(ctx, *args)
            # Since 2.14 PyTorch keeps them too. 2.15 takes those of the first program that was called.
            ctx._external_objects = {}
            return results

        @functools.wraps(backward)
        def backward_with_streams(ctx: Any, *args: Any) -> Any:
            with ctx.openreg_objects.found():
                return backward(ctx, *args)

        function.forward = staticmethod(forward_keeping_streams)
        function._backward_impl = staticmethod(backward_with_streams)
        return function

    factory.build = build


class _Objects:
    """The objects of the program that is being called. They live as long as this."""

    def __init__(self) -> None:
        from torch._dynamo import graph_bytecode_inputs

        # By number: a dict before version 2.15, then a list.
        self._table = copy.copy(graph_bytecode_inputs.index_to_external_object_weakref)
        references = self._table.values() if isinstance(self._table, dict) else self._table
        self._alive = [reference() for reference in references]

    @contextmanager
    def found(self) -> Iterator[None]:
        """Context manager: programs find these objects inside."""
        from torch._dynamo import graph_bytecode_inputs

        before = graph_bytecode_inputs.index_to_external_object_weakref
        # A copy: compiling a backward pass may add to it.
        graph_bytecode_inputs.index_to_external_object_weakref = copy.copy(self._table)
        try:
            yield
        finally:
            graph_bytecode_inputs.index_to_external_object_weakref = before
