"""Streams of compiled programs: on which of them nodes of a graph run, and which they are at a call.

Dynamo notes the stream of each node, if it is not the current one, as the number of an object: the program finds the
object in a table that each call fills (`torch._dynamo.graph_bytecode_inputs`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from types import ModuleType
from typing import Any

import torch

# Operators that draw random numbers for another operator, or again.
_DRAWING = ("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state")


def stream_of(node: torch.fx.Node) -> int | None:
    """As the program names it: `torch._functorch._aot_autograd.streams` notes it for each node."""
    stream: int | None = (node.meta.get("custom") or {}).get("stream")
    return stream


def set_stream(node: torch.fx.Node, stream: int | None) -> None:
    """Moves a node that a pass has made to the stream of those that it stands for."""
    custom = {key: value for key, value in (node.meta.get("custom") or {}).items() if key != "stream"}
    node.meta["custom"] = custom if stream is None else {**custom, "stream": stream}


def draw_on_the_same_stream(partitioners: ModuleType) -> None:
    """PyTorch replaces operators in checkpoints that draw random numbers, and the new nodes have no stream."""
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
    """Inductor draws the seeds of a program together, on the current stream, for which no other stream waits."""
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
