"""Calls of operators, and the ways in which the census changes their tensors before it makes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves, tree_map

CPU = torch.device("cpu")


class Call(NamedTuple):
    """What an operator is called with."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: Callable[[Any], Any] = lambda result: result  # of the results, what has well-defined gradients


def call_of(sample: Any) -> Call:
    return Call(sample.input, tuple(sample.args), dict(sample.kwargs), sample.output_process_fn_grad)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a nested value, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def names_device(call: Call) -> bool:
    """Whether the call says where it shall be done: with a tensor, or a device."""
    return any(isinstance(leaf, (torch.Tensor, torch.device)) or leaf == "cpu" for leaf in tree_leaves(tuple(call)))


class Mover:
    """Copies tensors of the CPU to a device, with the memory they lie in.

    Strides, offsets, conj and neg bits, what lies between the elements and which tensors share memory: all stay as they
    are. Sparse tensors are copied as `to` does it.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.memory: dict[int, torch.UntypedStorage] = {}
        self.copies: dict[int, torch.Tensor] = {}
        self.kept: list[torch.Tensor] = []  # so that no id is used again

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self.copies:
            self.kept.append(tensor)
            with torch.no_grad():
                copy = self.strided(tensor) if is_plain(tensor) else tensor.detach().clone().to(self.device)
            self.copies[id(tensor)] = copy.requires_grad_(tensor.requires_grad)
        return self.copies[id(tensor)]

    def strided(self, tensor: torch.Tensor) -> torch.Tensor:
        conj, neg = tensor.is_conj(), tensor.is_neg()
        physical = torch._neg_view(tensor.detach()) if neg else tensor.detach()
        physical = physical.conj() if conj else physical
        storage = physical.untyped_storage()
        if storage._cdata not in self.memory:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.memory[storage._cdata] = raw.clone().to(self.device).untyped_storage()
            self.kept.append(raw)
        copy = torch.empty(0, dtype=tensor.dtype, device=self.device)
        copy.set_(self.memory[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride())
        copy = copy.conj() if conj else copy
        return torch._neg_view(copy) if neg else copy

    def __call__(self, value: Any) -> Any:
        """A nested value, in which the CPU as an argument becomes the device."""

        def move(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return self.tensor(leaf) if leaf.device == CPU else leaf
            if isinstance(leaf, torch.device):
                return torch.device(self.device) if leaf == CPU else leaf
            return self.device if isinstance(leaf, str) and leaf == "cpu" else leaf

        return tree_map(move, value)


def is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized


def mapped(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Call], Call]:
    """Changes all strided tensors of a call; they require gradients as before."""

    def change_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not is_plain(leaf):
            return leaf
        with torch.no_grad():
            return change(leaf.detach()).detach().requires_grad_(leaf.requires_grad)

    return lambda call: Call(*tree_map(change_leaf, tuple(call)))


def detached(call: Call) -> Call:
    """The same call, with nothing that requires gradients."""
    return Call(*tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tuple(call)))


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def conj_view(tensor: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(tensor).conj() if tensor.is_complex() else tensor


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    numbers = tensor.is_floating_point() or tensor.is_complex()
    return torch._neg_view(tensor.neg()) if numbers and tensor.element_size() > 1 else tensor


# Ways to change a call, and the dtypes with which it is done: the first of each group that the entry supports.
VARIANTS: dict[str, tuple[Callable[[Call], Call], list[list[torch.dtype]]]] = {
    "noncontiguous": (mapped(noncontiguous_like), [[torch.float32, torch.int64, torch.bool], [torch.complex64]]),
    "channels_last": (mapped(channels_last), [[torch.float32, torch.int64]]),
    "conj": (mapped(conj_view), [[torch.complex64]]),
    "neg": (mapped(neg_view), [[torch.float32]]),
    "conj_neg": (mapped(lambda tensor: neg_view(conj_view(tensor))), [[torch.complex64]]),
}

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2, 0, 3), (1, 2, 1, 3, 1, 2, 2), (2, 1, 0, 1, 1, 2, 1)]


def shape_calls(op: Any, dtype: torch.dtype) -> Iterator[Call]:
    """Inputs of no dimension, of no element and of seven dimensions: element-wise operators and reductions."""

    def make(shape: tuple[int, ...], **limits: Any) -> torch.Tensor:
        return make_tensor(shape, device="cpu", dtype=dtype, **limits)

    if isinstance(op, UnaryUfuncInfo):
        for shape in SHAPES:
            x = make(shape, low=op.domain[0], high=op.domain[1])
            yield Call(x, (), op.sample_kwargs("cpu", dtype, x)[0])
    elif isinstance(op, BinaryUfuncInfo):
        limits = op.lhs_make_tensor_kwargs, op.rhs_make_tensor_kwargs
        for lhs, rhs in itertools.chain(zip(SHAPES, SHAPES, strict=True), itertools.permutations(SHAPES, 2)):
            try:
                torch.broadcast_shapes(lhs, rhs)
            except RuntimeError:
                continue
            yield Call(make(lhs, **limits[0]), (make(rhs, **limits[1]),), {})
    elif isinstance(op, ReductionOpInfo):
        for shape in SHAPES:
            dims: Iterable[Any] = [None, *((0, len(shape) - 1) if shape else ())]
            if op.supports_multiple_dims and len(shape) == 7:
                dims = [*dims, [1, 3, 6]]
            for dim, keepdim in itertools.product(dims, (False, True)):
                options = {"keepdim": keepdim} if dim is None else {"dim": dim, "keepdim": keepdim}
                for args, kwargs in op.generate_args_kwargs(make(shape), **options):
                    yield Call(make(shape), args, {**kwargs, **options})
