"""Where the race detector counts otherwise than changes of elements show, and why."""

from __future__ import annotations

import re

import torch

from recorded_calls import OperatorCall

_DECIDED = "elements of others, or its own, decide whether a change of these shows; it reads all of them"
_COPIES = "its functional form copies the operand first, and overwrites the copy"
_SAME = "what it writes is what was there"
_PLACES = "some windows leave gaps, but most do not: counted as wholly read, so that races with parts are found"
_INTERNAL = "only autograd has it"
_HOST = "the host reads the number before it knows that there is nothing to compute"

# By operator, operand and what is counted otherwise, as a regular expression.
EXPECTED: dict[str, str] = {
    # Less than is used
    r"convolution_backward input not counted": "oneDNN computes a gradient that is not asked for",
    r"(addmm|addmv|addbmm|baddbmm) (mat|vec|batch)\w* not counted": "some of the CPU's kernels multiply with 0",
    # More than is used
    r"(nll_loss2?d?_backward) total_weight reads none": f"a sum is not divided by it; {_INTERNAL}",
    r"_embedding_bag_backward (bag_size|maximum_indices|offsets|grad|per_sample_weights) reads": _INTERNAL,
    r"_embedding_bag_per_sample_weights_backward (weight|grad) reads some": _INTERNAL,
    r"_segment_reduce_backward (output|data|grad|offsets|lengths) reads": f"minima and maxima need them; {_INTERNAL}",
    r"(equal|allclose|isin|all|any|max|min|aminmax|arg(max|min)) \w+ reads": _DECIDED,
    r"(unique\w*|_unique2|histc|_histogram\w+) \w+ reads": _DECIDED,
    r"(max|median|mode|kthvalue|searchsorted|bucketize|bincount|count_nonzero|linalg_pinv|sort) \w+ reads": _DECIDED,
    r"(gather|scatter_add|scatter_reduce|index_reduce|fractional_max_pool\dd|max_unpool\dd) \w+ reads": _DECIDED,
    r"(scatter|index_add|index_put) (index|indices) reads": _DECIDED,
    r"(_unsafe_masked_index\w*|masked_scatter_backward) (indices|mask|grad_output) reads": _DECIDED,
    r"(grid_sampler_\dd(_backward)?) (grid|input|grad_output) reads": _DECIDED,
    r"(multi_margin_loss|multilabel_margin_loss)(_\w+)? \w+ reads": _DECIDED,
    r"(_cdist_backward|_pdist_backward|native_layer_norm|native_dropout_backward) \w+ reads": _DECIDED,
    r"(hardtanh|hardswish|hardshrink|softshrink|hardsigmoid|elu)_backward \w+ reads": _DECIDED,
    r"lu_unpack LU_pivots reads": _DECIDED,
    r"(masked_fill|masked_scatter|masked_select|where) \w+ reads": _DECIDED,
    r"(index_(copy|fill|put|reduce)|put|scatter\w*) (self|values|source) reads": _COPIES,
    r"(\w+_scatter|masked_\w+) (self|values|source) reads": _COPIES,
    r"(cumsum|cumprod) self writes some": _SAME,
    r"(addmm|addbmm|addmv|baddbmm) self (reads|writes) none": _SAME,
    r"native_batch_norm running_(mean|var) (reads|writes) none": f"its momentum is 0: {_SAME}",
    r"(avg_pool\dd|max_pool\dd\w*|convolution\w*|im2col|upsample\w*) \w+ reads some": _PLACES,
    r"(linspace|logspace) (start|end) reads none": _HOST,
    r"ldexp other reads none": _HOST,
    r"\w+ \w+ raises RuntimeError: Only dense CPU tensors can be pinned": "its samples name the CPU",
    r"addmv \w+ raises": "PyTorch: addmv of no elements resizes its result, or refuses that",
}
# With a size of 0.
EXPECTED_IF_EMPTY: dict[str, str] = {
    r"\w+ (weight|grid|LU_pivots|indices|mask|self|x1|batch1) reads": "only the result and this have elements",
    r"(_unsafe_masked_index\w*|embedding|bucketize) \w+ reads": "the result is the same whatever they are",
}


def is_elementwise(call: OperatorCall) -> bool:
    """It reads all elements, also where others decide that a change does not show."""
    of = getattr(torch.ops.aten, call.op._schema.name.removeprefix("aten::").rstrip("_"), None)
    return of is not None and any(torch.Tag.pointwise in getattr(of, each).tags for each in of.overloads())


def is_expected(call: OperatorCall, operand: str, text: str) -> bool:
    if any(isinstance(each, list) and each and not any(each) for each in call.args):
        return True  # no gradient is asked for
    name = call.op._schema.name.removeprefix("aten::").rstrip("_")
    line = f"{name} {operand.partition('[')[0]} {text}"
    if is_elementwise(call) and text.startswith("reads") and not call.has_no_elements():
        return True
    tables = [EXPECTED, EXPECTED_IF_EMPTY] if call.has_no_elements() else [EXPECTED]
    return any(re.match(pattern, line) for table in tables for pattern in table)
