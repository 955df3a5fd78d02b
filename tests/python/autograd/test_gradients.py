"""Derivatives of PyTorch's database of operators, against finite differences on the device.

First derivatives backward and forward, alone and batched, and second ones. Every twelfth operator, by a hash of its
name, is checked each time; all of them with ``-m ""``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from slices import one_in, passes_where_the_cpu_does
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

pytestmark = pytest.mark.any_device

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 2  # the smallest ones: the cost grows with the square of the elements
MOST_ELEMENTS = 500

Function = Callable[..., tuple[torch.Tensor, ...]]


def differentiable() -> list[Any]:
    chosen = []
    for op in op_db:
        if not op.supports_autograd or torch.float64 not in op.supported_backward_dtypes("cpu"):
            continue
        if "sparse" in op.name:  # their samples or results are sparse tensors: ../layouts has their gradients
            continue
        if op.name.startswith("nn.functional.max_unpool") and not op.variant_test_name:
            continue  # its samples name places twice, where there is no derivative; those of the variant "grad" do not
        chosen.append(one_in(12, op.full_name, op))
    return chosen


def functions(op: Any, device: str) -> list[tuple[Function, list[torch.Tensor]]]:
    """The operator at each of some samples, as a function of the tensors that have gradients, with these tensors."""
    torch.manual_seed(0)
    made = []
    for sample in op.sample_inputs(device, torch.float64, requires_grad=True):
        leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        elements = sum(leaves[i].numel() for i in where)

        def function(*tensors: torch.Tensor, sample=sample, leaves=leaves, structure=structure, where=where) -> Any:
            given = list(leaves)
            for i, tensor in zip(where, tensors, strict=True):
                given[i] = tensor
            first, args, kwargs = tree_unflatten(given, structure)
            result = op.gradcheck_wrapper(op.op, first, *args, **kwargs)
            if sample.output_process_fn_grad is not None:
                result = sample.output_process_fn_grad(result)
            tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            return tuple(tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex())

        if 0 < elements <= MOST_ELEMENTS:
            made.append((elements, function, [leaves[i] for i in where]))
    made.sort(key=lambda each: each[0])
    return [(function, tensors) for _, function, tensors in made[:SAMPLES]]


def check_first(op: Any, device: str) -> int:
    made = functions(op, device)
    for function, tensors in made:
        gradcheck(
            function,
            tensors,
            fast_mode=op.gradcheck_fast_mode is not False,
            nondet_tol=op.gradcheck_nondet_tol,
            check_batched_grad=op.check_batched_grad,
            check_forward_ad=op.supports_forward_ad,
            check_batched_forward_grad=op.supports_forward_ad and op.check_batched_forward_grad,
        )
    return len(made)


def check_second(op: Any, device: str) -> int:
    made = functions(op, device)
    for function, tensors in made:
        gradgradcheck(
            function,
            tensors,
            fast_mode=op.gradcheck_fast_mode is not False,
            nondet_tol=op.gradcheck_nondet_tol,
            check_batched_grad=op.check_batched_gradgrad,
        )
    return len(made)


NOTHING = "has no small sample with gradients"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", differentiable())
def test_first_derivatives_are_right(op):
    passes_where_the_cpu_does(check_first, op, NOTHING)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [param for param in differentiable() if param.values[0].supports_gradgrad])
def test_second_derivatives_are_right(op):
    passes_where_the_cpu_does(check_second, op, NOTHING)
