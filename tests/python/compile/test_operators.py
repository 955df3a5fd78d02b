"""PyTorch's database of operators, traced: fake results look like real ones, compiled code gives what eager code does.

A slice of it, by a hash of the operators' names, is run each time; all of it with ``-m ""``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from slices import one_in, passes_where_the_cpu_does
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

pytestmark = [pytest.mark.any_device, pytest.mark.filterwarnings("ignore")]
SAMPLES = 4

Operation = Callable[..., Any]


def operators(share: int) -> list[Any]:
    """One of `share` is run each time."""
    return [one_in(share, op.full_name, op) for op in op_db if torch.float32 in op.dtypes]


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def appearance(tensor: torch.Tensor) -> dict[str, Any]:
    # The stride of a dimension of size one says nothing.
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    return {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "device": tensor.device.index if tensor.device.type == "openreg" else tensor.device.type,
        "strides": strides if tensor.numel() else [],
        "bits": (tensor.is_conj(), tensor.is_neg()),
    }


def differences(op: Any, device: str) -> list[tuple[int, int, str]]:
    """Sample, output and attribute in which fake and real results differ."""
    torch.manual_seed(0)
    found = []
    for number, sample in enumerate(itertools.islice(op.sample_inputs(device, torch.float32), SAMPLES)):
        given = (sample.input, sample.args, sample.kwargs)
        first, args, kwargs = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, given)
        real = tensors(op(first, *args, **kwargs))
        with FakeTensorMode() as mode:

            def faked(leaf: Any, mode: FakeTensorMode = mode) -> Any:
                return mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf

            first, args, kwargs = tree_map(faked, given)
            try:
                fake = tensors(op(first, *args, **kwargs))
            except (DataDependentOutputException, DynamicOutputShapeException):
                continue  # by design
        for output, (r, f) in enumerate(zip(real, fake, strict=True)):
            expected, got = appearance(r), appearance(f)
            found += [(number, output, name) for name in expected if got[name] != expected[name]]
    return found


@pytest.mark.openreg_only
@pytest.mark.parametrize("op", operators(16))
def test_a_fake_result_looks_like_the_real_one(op):
    try:
        accepted = differences(op, "cpu")
    except Exception:
        pytest.skip("fails on the CPU as well")
    # PyTorch's formulas for shapes are wrong for a few operators, on the CPU too.
    assert [each for each in differences(op, "openreg") if each not in accepted] == []


def first_sample(op: Any, device: str) -> tuple[Operation, list[torch.Tensor]] | None:
    """The operator as a function of the tensors of its first sample that has elements, and these."""
    torch.manual_seed(0)
    for sample in op.sample_inputs(device, torch.float32, requires_grad=op.supports_autograd):
        if not isinstance(sample.input, torch.Tensor) or sample.input.numel() == 0:
            continue
        leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def function(*given: torch.Tensor, leaves=leaves, structure=structure, where=where) -> Any:
            values = list(leaves)
            for i, tensor in zip(where, given, strict=True):
                values[i] = tensor
            first, args, kwargs = tree_unflatten(values, structure)
            return op.op(first, *args, **kwargs)

        return function, [leaves[i] for i in where]
    return None


def results(function: Operation, given: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Outputs and gradients, with the same random numbers each time."""
    torch.manual_seed(1)
    outputs = tensors(function(*given))
    last = [output for output in outputs if output.requires_grad]
    leaves = [tensor for tensor in given if tensor.requires_grad]
    seeds = [torch.ones_like(output) for output in last]
    gradients = torch.autograd.grad(last, leaves, seeds, allow_unused=True) if last and leaves else ()
    return [output.detach() for output in outputs] + list(gradients)


def equals_eager(op: Any, device: str, atol: float, **options: Any) -> bool:
    """Compiled with these options of torch.compile. False: it has no sample with elements."""
    sample = first_sample(op, device)
    if sample is None:
        return False
    function, given = sample
    expected = results(function, given)
    torch._dynamo.reset()
    got = results(torch.compile(function, **options), given)
    assert_close(got, expected, rtol=1e-4, atol=atol, equal_nan=True)
    return True


def compiled_equals_eager(op: Any, device: str) -> bool:
    return equals_eager(op, device, atol=1e-5, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("op", operators(60))
def test_a_compiled_operator_and_its_gradient_are_those_of_eager_mode(op):
    passes_where_the_cpu_does(compiled_equals_eager, op, "has no sample with elements")
