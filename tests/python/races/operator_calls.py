"""Calls of the operators of PyTorch's database, and which memory each operator is given, writes and returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = "openreg"
# Structured operators that copy as well: the input, in the meta function, or what the host has computed, to results of
# the strides of LAPACK.
_COPIES = {"aten::baddbmm", "aten::_linalg_eigh", "aten::_linalg_svd"}
# Operators that look at a tensor's shape, dtype or strides only, although their schema does not say that they return a
# view of it.
_METADATA = ("_like", "unsafe_split", "unsafe_split_with_sizes", "resize_as_", "resize_")


@dataclass
class Call:
    """What an operator is called with."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def inputs(self) -> list[torch.Tensor]:
        return parts_of((self.args, self.kwargs))


def parts_of(value: Any) -> list[torch.Tensor]:
    """The strided tensors with elements on the device in a nested value; a sparse tensor consists of several."""
    found = []
    for leaf in tree_leaves(value):
        if not isinstance(leaf, torch.Tensor) or leaf.device.type != DEVICE:
            continue
        if leaf.layout is torch.sparse_coo:
            found += [leaf._indices(), leaf._values()]
        elif leaf.layout in (torch.sparse_csr, torch.sparse_bsr):
            found += [leaf.crow_indices(), leaf.col_indices(), leaf.values()]
        elif leaf.layout in (torch.sparse_csc, torch.sparse_bsc):
            found += [leaf.ccol_indices(), leaf.row_indices(), leaf.values()]
        else:
            assert leaf.layout is torch.strided and not leaf.is_nested
            found.append(leaf)
    return [part for part in found if part.numel() > 0]


def address_of(part: torch.Tensor) -> int:
    return part.untyped_storage().data_ptr()


def bytes_of(part: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that it lies in, whatever its strides are."""
    return torch.empty(0, dtype=torch.uint8, device=part.device).set_(part.untyped_storage())


def full_name(op: OpInfo) -> str:
    return ".".join(filter(None, (op.name, op.variant_test_name)))


def variants(op: OpInfo) -> dict[str, Any]:
    """The operator's functions by name: itself, and its in-place variant."""
    found = {full_name(op): op.get_op(), f"{full_name(op)}, in place": op.get_inplace()}
    return {name: function for name, function in found.items() if function is not None}


def first_call(op: OpInfo, function: Any) -> Call | None:
    """The first sample with more than one element, else the first; in float32 if it is supported. None: no samples."""
    dtypes = sorted(op.dtypes or (), key=lambda dtype: (dtype is not torch.float32, str(dtype)))
    if not dtypes:
        return None
    torch.manual_seed(0)  # for the next call of this function to make the same one
    calls: Iterator[Call] = (
        Call(function, (sample.input, *sample.args), sample.kwargs)
        # sample_inputs() looks for the test that calls it, which takes longer than all else
        for sample in op.sample_inputs_func(op, DEVICE, dtypes[0], requires_grad=False)
    )
    first = None
    for call in calls:
        first = first or call
        if any(part.numel() > 1 for part in call.inputs()):
            return call
    return first


@dataclass
class Operation:
    """One operator that a call has reached below autograd. Memory is given by its addresses."""

    op: str
    arguments: dict[str, set[int]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)  # names of arguments
    results: dict[str, set[int]] = field(default_factory=dict)
    uses_elements: bool = True  # of its arguments; else only their shapes and strides

    @property
    def base(self) -> str:
        return base_name(self.op)

    def arguments_at(self, address: int) -> set[str]:
        return {name for name, memory in self.arguments.items() if address in memory}

    def written_at(self, address: int) -> set[str]:
        results = {name for name, memory in self.results.items() if address in memory}
        return results | (self.arguments_at(address) & self.written)


def base_name(op: str) -> str:
    """ "aten::add.out" -> "aten::add" """
    return op.split(".")[0]


def _memory(value: Any) -> set[int]:
    return {address_of(part) for part in parts_of(value)}


def _only_views(func: Any) -> bool:
    schema = func._schema
    if torch.Tag.inplace_view in func.tags:
        return True
    name = base_name(func.name()).removeprefix("aten::")
    if name.endswith(_METADATA) or name.startswith("new_") or func is torch.ops.aten.fill.Scalar:
        return True
    returned = [result.alias_info for result in schema.returns]
    return bool(returned) and all(alias is not None and not alias.is_write for alias in returned)


class Operations(TorchDispatchMode):
    """Notes the operators, in order. The last one is that which raised."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation = Operation(func.name(), uses_elements=not _only_views(func))
        self.noted.append(operation)
        for number, argument in enumerate(func._schema.arguments):
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            values = list(enumerate(value)) if isinstance(value, (list, tuple)) else [(None, value)]
            for i, each in values:
                name = argument.name if i is None else f"{argument.name}[{i}]"
                if isinstance(each, torch.Tensor):
                    operation.arguments[name] = _memory(each)
                    if argument.alias_info is not None and argument.alias_info.is_write:
                        operation.written.add(name)
        result = func(*args, **kwargs)
        for i, tensor in enumerate(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)):
            operation.results[f"result {i}" if i else "the result"] = _memory(tensor)
        return result


def may_call_others(op: str) -> bool:
    """Whether its implementation may consist of other operators, which are then those that the device runs."""

    def has(key: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(op, key)

    is_one_kernel = has("CPU") and not has("CompositeExplicitAutograd")
    if has("PrivateUse1"):  # registered here: a function that may call others, unless it is structured
        is_one_kernel &= has("CompositeExplicitAutogradNonFunctional")
    return not is_one_kernel or op in _COPIES
