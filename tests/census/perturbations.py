"""Calls of operators with one argument changed: a number, a flag, a word, a dtype, a shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from samples import Call, is_plain

DTYPES = (torch.bool, torch.int64, torch.complex64)
INTEGERS = (0, -1, 99, -99, 300)  # 99: no tensor has that many dimensions; 300: no int8 holds it
FLOATS = (0.0, -1.0, 1e30)
PER_SAMPLE = 60  # at most


class Perturbed(NamedTuple):
    """A call with a change."""

    change: str
    call: Call


def other_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Of other dtypes, with one dimension more, with one element less in the last."""
    tensor = tensor.detach()
    changed = [tensor.to(dtype) for dtype in DTYPES if dtype != tensor.dtype]
    changed.append(tensor.unsqueeze(0))
    if tensor.dim() and tensor.shape[-1] > 1:
        changed.append(tensor.narrow(-1, 0, tensor.shape[-1] - 1))
    return changed


def others(leaf: Any, is_input: bool) -> list[Any]:
    """What goes in the place of an argument."""
    if isinstance(leaf, bool):
        return [not leaf]
    if isinstance(leaf, int):
        return [value for value in INTEGERS if value != leaf]
    if isinstance(leaf, float):
        return [value for value in FLOATS if value != leaf]
    if isinstance(leaf, complex):
        return [0j, 1e30 + 0j]
    if isinstance(leaf, str) and leaf != "cpu":
        return ["nonsense"]
    if isinstance(leaf, torch.dtype):
        return [dtype for dtype in DTYPES if dtype != leaf]
    if isinstance(leaf, torch.Tensor) and is_plain(leaf):
        return [*other_tensors(leaf), *(() if is_input else (0, 300))]
    return []


def place(path: Any) -> str:
    """Where in a call an argument is: "input", "args[1]", "kwargs['dim'][0]"."""
    first, *rest = path
    return f"{('input', 'args', 'kwargs')[first.idx]}{''.join(map(str, rest))}"


def described(leaf: Any) -> str:
    return f"{leaf.dtype} {list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def perturbed(call: Call) -> Iterator[Perturbed]:
    """The call with each of its arguments changed in turn; the rest are the same objects."""
    leaves, spec = tree_flatten_with_path((call.input, call.args, call.kwargs))
    values = [leaf for _, leaf in leaves]
    changes = [(i, other) for i, leaf in enumerate(values) for other in others(leaf, is_input=i == 0)]
    for i, other in changes[:PER_SAMPLE]:
        input_, args, kwargs = tree_unflatten([*values[:i], other, *values[i + 1 :]], spec)
        change = f"{place(leaves[i][0])}: {described(values[i])} -> {described(other)}"
        yield Perturbed(change, Call(input_, args, kwargs))
