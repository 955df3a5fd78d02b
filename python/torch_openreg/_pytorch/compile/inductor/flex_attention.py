"""flex_attention in graphs: for inference it is the CPU's kernel, else ordinary operators.

The kernel has no backward pass, does not return the sums that one needs, and does not take all dtypes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.kernel.flex import flex_cpu
from torch._ops import OpOverload
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...._slot import NAME
from . import attention_blocks as blocks

_FORWARD = torch.ops.higher_order.flex_attention
_BACKWARD = torch.ops.higher_order.flex_attention_backward
# In place of operators that have no rule for vmap.
_WITH_RULES: dict[Any, Callable[..., Any]] = {
    torch.ops.prims.convert_element_type.default: lambda x, dtype: torch.ops.aten._to_copy(x, dtype=dtype),
    torch.ops.aten.fill.Scalar: torch.full_like,
    torch.ops.aten.mish_backward.default: decomposition_table[torch.ops.aten.mish_backward.default],
}
_OF_THE_KERNEL = (torch.float32, torch.bfloat16, torch.float16)


def replace_flex_attention() -> None:
    """Replaces flex_attention on the device in each graph that Inductor lowers."""
    original = compile_fx._recursive_post_grad_passes

    @functools.wraps(original)
    def passes(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        replace_in(gm)
        return original(gm, *args, **kwargs)

    compile_fx._recursive_post_grad_passes = passes


def replace_in(gm: GraphModule) -> None:
    """Replaces flex_attention on the device in a graph."""
    for target, replace in ((_FORWARD, _replace_forward), (_BACKWARD, _replace_backward)):
        for node in list(gm.graph.find_nodes(op="call_function", target=target)):
            if node.args[0].meta["val"].device.type == NAME:
                replace(gm, node)


def _replace_forward(gm: GraphModule, node: Node) -> None:
    results = _results(node)
    if results.keys() <= {0} and _has_kernel(node):
        # PyTorch asks for the logarithms of sums wherever gradients are enabled.
        options = {**node.args[6], "OUTPUT_LOGSUMEXP": False}  # type: ignore[dict-item]
        node.update_arg(6, options)
        return

    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: _Modification,
        mask: tuple[Any, ...],
        scale: float,
        options: dict[str, Any],
        captured: tuple[Any, ...] = (),
        captured_by_mask: tuple[Any, ...] = (),
    ) -> tuple[Tensor, ...]:
        call = blocks.Functions(score_mod, mask[-1], scale, _unit(options))
        operands = blocks.Operands(query, key, value, _blocks(key, mask), captured, captured_by_mask)
        return blocks.forward(call, operands)

    _replace(gm, node, forward, results)


def _replace_backward(gm: GraphModule, node: Node) -> None:
    def backward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        sums: Tensor,
        of_out: Tensor | None,
        of_sums: Tensor | None,
        score_mod: _Modification,
        joint: _Modification,
        mask: tuple[Any, ...],
        scale: float,
        options: dict[str, Any],
        captured: tuple[Any, ...] = (),
        captured_by_mask: tuple[Any, ...] = (),
    ) -> list[Tensor]:
        if not query.dtype == key.dtype == value.dtype:
            raise ValueError(
                "openreg: the backward pass of flex_attention needs one dtype (got "
                f"{query.dtype}, {key.dtype} and {value.dtype}, expected the same for query, key and value)"
            )
        learned = _learned(joint, len(captured))
        call = blocks.Functions(score_mod, mask[-1], scale, _unit(options), joint, learned)
        operands = blocks.Operands(query, key, value, _blocks(key, mask), captured, captured_by_mask, (sums,))
        of_out = torch.zeros_like(out) if of_out is None else of_out
        of_sums = torch.zeros_like(sums) if of_sums is None else of_sums
        found = blocks.backward(call, operands, out, of_out, of_sums)
        of_captured = [
            torch.zeros_like(each) if isinstance(each, Tensor) and number not in learned else each
            for number, each in enumerate(captured)
        ]
        for number, each in zip(learned, found[3:], strict=True):
            of_captured[number] = each
        return [*found[:3], *of_captured]

    results = _results(node)
    if of_captured := results.pop(3, None):
        results |= {3 + number: result for number, result in _results(of_captured).items()}
    _replace(gm, node, backward, results)


def _has_kernel(node: Node) -> bool:
    dtypes = {each.meta["val"].dtype for each in node.args[:3]}  # type: ignore[union-attr]
    return len(dtypes) == 1 and dtypes <= set(_OF_THE_KERNEL) and bool(flex_cpu.check_cpu_supported())


def _unit(options: dict[str, Any]) -> float:
    return 1.0 if options.get("BACKEND") == "FLASH" else math.log(2)


def _blocks(key: Tensor, mask: tuple[Any, ...]) -> tuple[Any, ...]:
    # mask: the lengths, the lists of blocks for rows, those for columns, and more, the sizes of a block, its function
    return blocks.listed_blocks(key, mask[2:6], mask[-3:-1])


def _learned(joint: _Modification, captured: int) -> tuple[int, ...]:
    found = joint.graph.output_node().args[0]
    assert isinstance(found, (list, tuple))
    gradients = found[len(found) - captured :]
    return tuple(number for number, gradient in enumerate(gradients) if gradient is not None)


# --- Graphs ---


def _results(node: Node) -> dict[int, Node]:
    """The nodes that take the results of a node, by the number of the result."""
    found: dict[int, Node] = {}
    for user in list(node.users):
        number = user.args[1]
        assert isinstance(number, int), user
        first = found.setdefault(number, user)
        if first is not user:
            user.replace_all_uses_with(first)
            user.graph.erase_node(user)
    return found


def _replace(gm: GraphModule, node: Node, function: Callable[..., Any], results: dict[int, Node]) -> None:
    """Replaces a node by what `function` does with its arguments."""
    leaves, spec = tree_flatten(node.args)
    static = {place: _static(gm, leaf) for place, leaf in enumerate(leaves) if not _has_value(leaf)}
    inputs = [leaf for leaf in leaves if _has_value(leaf)]

    def call(*values: Any) -> Any:
        given = iter(values)
        arguments = [static[place] if place in static else next(given) for place in range(len(leaves))]
        with TransformGetItemToIndex():
            return function(*tree_unflatten(arguments, spec))

    values = [each.meta["val"] for each in inputs]
    mode = detect_fake_mode(values)
    assert mode is not None
    table = {**select_decomp_table(), torch.ops.flex_lib.zeros_and_scatter.default: blocks.scatter}
    with torch.no_grad(), mode:
        traced = make_fx(call, decomposition_table=table)(*values)
    traced.graph.eliminate_dead_code()
    with gm.graph.inserting_before(node):
        replaced = _insert(gm, traced, inputs)
    for number, result in results.items():
        result.replace_all_uses_with(replaced[number])
        gm.graph.erase_node(result)
    for user in list(node.users):
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)
    gm.recompile()


def _has_value(leaf: Any) -> bool:
    return isinstance(leaf, Node) and "val" in leaf.meta


def _static(gm: GraphModule, leaf: Any) -> Any:
    value = _attribute(gm, leaf) if isinstance(leaf, Node) else leaf
    return _Modification(value) if isinstance(value, GraphModule) else value


class _Modification(Interpreter):
    """Runs the graph of a modification or a mask, or of a gradient, by operators that have a rule for vmap."""

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = _WITH_RULES.get(target, target)
        if isinstance(target, OpOverload) and not _has_rule(target) and any(map(_is_batched, args)):
            # PyTorch would call it for each score in turn, which does not end.
            raise NotImplementedError(
                f"openreg: a modification of flex_attention, or its gradient, calls {target}, which has no rule for "
                "torch.vmap; write it with other operators"
            )
        return super().call_function(target, args, kwargs)


def _has_rule(operator: OpOverload) -> bool:
    keys = ("FuncTorchBatched", "FuncTorchBatchedDecomposition", "CompositeImplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in keys)


def _is_batched(argument: Any) -> bool:
    return isinstance(argument, Tensor) and torch._C._functorch.is_batchedtensor(argument)


def _attribute(gm: GraphModule, node: Node) -> Any:
    return functools.reduce(getattr, str(node.target).split("."), gm)


def _insert(gm: GraphModule, traced: GraphModule, inputs: list[Node]) -> list[Node]:
    """Copies the nodes of `traced` to the graph; returns its results."""
    copies = dict(zip(traced.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in traced.graph.nodes:
        if node.op == "output":
            return [copies[result] for result in node.args[0]]
        if node.op == "placeholder":
            continue
        copy = copies[node] = gm.graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            copy.target = _added(gm, str(node.target), _attribute(traced, node))
    raise AssertionError("a graph without an output")


def _added(gm: GraphModule, name: str, value: Any) -> str:
    """The name of an attribute that is new in a graph's module."""
    number = 0
    while hasattr(gm, f"openreg_{name}_{number}"):
        number += 1
    setattr(gm, f"openreg_{name}_{number}", value)
    return f"openreg_{name}_{number}"
