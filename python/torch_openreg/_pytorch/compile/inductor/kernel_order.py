"""Operations that order work keep their place among the kernels of a program.

Kernels that precede such an operation in the program are emitted before it, those that follow it are emitted after it,
and no kernel is fused across it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.graph import GraphLowering
from torch.utils._pytree import tree_leaves

from ...._slot import NAME
from ..graph_order import is_barrier, orders_streams


def keep_order() -> None:
    """Makes barriers of the operations that order work, in each graph that Inductor lowers."""
    original = GraphLowering.run_node

    @functools.wraps(original)
    def run_node(self: Any, node: torch.fx.Node) -> Any:
        if node.op == "output":
            result = original(self, node)
            _add_dependencies(self)
            return result
        if not (_orders(node) and (NAME in self.device_types or orders_streams(node))):
            return original(self, node)
        _realize_values(self)
        first = len(self.operations)
        result = original(self, node)
        for operation in self.operations[first:]:
            _become_barrier(self, operation)
        _barriers(self).append((first, len(self.operations)))
        return result

    GraphLowering.run_node = run_node  # type: ignore[method-assign, assignment]


def _orders(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and (
        is_barrier(node) or any(_orders(each) for called in _functions(node) for each in called.graph.nodes)
    )


def _functions(node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    """The graphs that a higher-order operator calls: branches, bodies of loops, regions that are compiled once."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        for argument in node.all_input_nodes:
            if argument.op == "get_attr":
                module = getattr(argument.graph.owning_module, str(argument.target), None)
                if isinstance(module, torch.fx.GraphModule):
                    yield module


def _barriers(graph: Any) -> list[tuple[int, int]]:
    """The barriers of a graph that is being lowered: the first of its operations, and the first after them."""
    barriers: list[tuple[int, int]] = graph.__dict__.setdefault("openreg_barriers", [])
    return barriers


def _realize_values(graph: Any) -> None:
    """Turns values that are still needed into buffers. Inductor would compute them where they are used: too late."""
    for leaf in tree_leaves(list(graph.env.values())):
        if isinstance(leaf, ir.TensorBox):
            leaf.realize()


def _become_barrier(graph: Any, operation: Any) -> None:
    operation.has_side_effects = lambda: True
    # The scheduler emits the pending kernels before an operation of a device, but not before one without a device.
    if operation.get_device() is None and isinstance(operation.layout, ir.NoneLayout):
        operation.layout = ir.NoneLayout(device=_device(graph))


def _device(graph: Any) -> torch.device:
    return next((device for device in graph.device_node_mapping if device.type == NAME), torch.device("cpu"))


def _add_dependencies(graph: Any) -> None:
    """Every operation depends on the barrier before it, and each barrier on all operations since the last one."""
    operations, start = graph.operations, 0
    previous: list[str] = []
    for first, end in (*_barriers(graph), (len(operations), len(operations))):
        for operation in operations[start:first]:
            graph.additional_buffer_deps[operation.get_operation_name()].update(previous)
        if first == end:
            continue
        before = previous + _written(operations[start:first])
        for operation in operations[first:end]:
            graph.additional_buffer_deps[operation.get_operation_name()].update(before)
        previous, start = _written(operations[first:end]), end


def _written(operations: list[Any]) -> list[str]:
    buffers = (buffer for operation in operations for buffer in operation.get_outputs())
    return [buffer.get_name() for buffer in buffers if buffer.name is not None]
