"""Tensors of two devices in one call: an error, wherever CUDA has one. Nothing is computed where it should not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_unflatten

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.full,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),
]  # half a minute, quiet

ELSEWHERE = (f"{DEVICE}:1", "cpu")
# Operators that take each tensor by itself, or that copy one to the device of the other, in PyTorch's code for all.
INPUTS = {
    *("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "expand_as", "reshape_as", "view_as", "to"),
    *("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter", "resize_as_", "diff"),
    *("tensor_split", "__getitem__", "index_put", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
    "nn.functional.ctc_loss",
}
# Functions without inputs compare the kind of device of `out` only; `lu` copies its results.
OUTPUTS = {
    *("arange", "linspace", "linspace.tensor_overload", "logspace", "logspace.tensor_overload", "randn", "ones"),
    *("zeros", "full", "empty", "eye", "normal.number_mean", "lu"),
}


def tensors_of(leaves: list[Any]) -> list[int]:
    """Where the tensors are that must be on one device: not those of a single number, or of none."""
    return [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.numel()]


def first_call(op: OpInfo, tensors: int) -> Iterator[tuple[list[Any], Any, Any]]:
    """The leaves, the structure and the result of the first sample with so many tensors that the device computes."""
    dtypes = op.dtypes if op.dtypes else set()
    if not dtypes:
        return
    dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
    for sample in op.sample_inputs(f"{DEVICE}:0", dtype):
        leaves, structure = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        if len(tensors_of(leaves)) < tensors:
            continue
        try:
            args, kwargs = tree_unflatten(leaves, structure)
            yield leaves, structure, op(*args, **kwargs)
            return
        except (RuntimeError, NotImplementedError, AssertionError):  # the last: jiterator's operators
            continue


def accepts(op: OpInfo, args: Any, kwargs: Any) -> bool:
    try:
        op(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return False
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    return True


def test_an_input_on_another_device_is_refused():
    accepted, tried = set(), 0
    for op in op_db:
        for leaves, structure, _ in first_call(op, tensors=2):
            for i in tensors_of(leaves):
                for device in ELSEWHERE:
                    tried += 1
                    other = [*leaves[:i], leaves[i].detach().to(device), *leaves[i + 1 :]]
                    if accepts(op, *tree_unflatten(other, structure)):
                        accepted.add(op.full_name)
    assert tried > 500 and "view_as" in accepted and accepted - INPUTS == set()


def test_an_output_on_another_device_is_refused():
    accepted, tried = set(), 0
    for op in op_db:
        for leaves, structure, result in first_call(op, tensors=0) if op.supports_out else ():
            several = isinstance(result, (tuple, list))
            results = list(result) if several else [result]
            if not all(isinstance(each, torch.Tensor) for each in results):
                continue
            args, kwargs = tree_unflatten(leaves, structure)
            for device in ELSEWHERE:
                for shape in ([0], None):
                    out = [torch.empty(shape or each.shape, dtype=each.dtype, device=device) for each in results]
                    tried += 1
                    if accepts(op, args, {**kwargs, "out": tuple(out) if several else out[0]}):
                        accepted.add(op.full_name)
    assert tried > 500 and "zeros" in accepted and accepted - OUTPUTS == set()
