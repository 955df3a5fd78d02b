"""Where operators run if one operand is a number on the CPU, as eager mode and Inductor allow."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves, tree_map

from ...._slot import NAME
from .. import cpu_equivalence


def run_where_results_are() -> None:
    """Keeps kernels that read the device's memory off the CPU, and the CPU's memory out of the device's kernels.

    Inductor takes the first operand's device for several operators, and then the CPU's kernel would read the device's
    memory. Elementwise operators prefer a GPU; the others are left to eager mode's kernels. Numbers travel with the
    command, so an element of a tensor on the CPU is copied to a number of its own.
    """
    cpu_equivalence.prefer_the_device_to_the_cpu(lowering)
    original = GraphLowering.call_function

    @functools.wraps(original)
    def call_function(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        expected = V.current_node.meta.get("val")
        if not isinstance(target, torch._ops.OpOverload) or not any(map(_is_on_the_device, tree_leaves(expected))):
            return original(self, target, args, kwargs)
        if torch.Tag.pointwise in target.tags:
            args, kwargs = tree_map(_number, (args, kwargs))
        result = original(self, target, args, kwargs)
        if _is_misplaced(result, expected):
            return lowering.fallback_handler(target, add_to_fallback_set=False)(*args, **kwargs)
        return result

    GraphLowering.call_function = call_function  # type: ignore[method-assign]


def _is_node(value: Any) -> bool:
    return isinstance(value, ir.IRNode)


def _is_on_the_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _is_misplaced(result: Any, expected: Any) -> bool:
    """Whether this result of a lowering is on the CPU and the operator's is on the device."""
    return any(
        _is_node(mine) and _is_on_the_device(theirs) and ir.get_device_type(mine) == "cpu"
        for mine, theirs in zip(tree_leaves(result), tree_leaves(expected), strict=False)
    )


def _number(operand: Any) -> Any:
    """An operand on the CPU that a kernel can read as a number."""
    if not isinstance(operand, ir.TensorBox) or ir.get_device_type(operand) != "cpu":
        return operand
    read = [V.graph.get_buffer(name) for name in operand.get_read_names()]
    return ir.ExternKernel.copy_input(operand) if any(buffer.get_size() for buffer in read) else operand
