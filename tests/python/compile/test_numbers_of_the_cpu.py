"""0-dim CPU tensors beside tensors of the device, in compiled programs: the device computes, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo
from torch.utils._pytree import tree_leaves

DEVICE = "openreg"


def elementwise(s: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        s + x,
        s * x.sum(),
        torch.pow(s, x),
        torch.where(x > 1, s, x),
        torch.where(s > 1, x, x * 2),
        torch.maximum(s, x),
        torch.addcmul(s, x, x),
        torch.lerp(s, x, 0.25),
        s * torch.ones(3, device=x.device),
        (s * 2).exp() * x + s,
        s.double() * x,
    )


def written(s: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    chosen = torch.tensor([1], device=x.device)
    return (
        x.masked_fill(x > 1, s),
        torch.index_put(x, (chosen,), s),
        torch.fill(x, s),
        torch._foreach_mul([x, x + 1], s)[1],
        x.mul_(s).add_(s, alpha=2),
    )


def mutated(s: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    before = s + x
    s.mul_(2)
    return before, s * x, s + 1


def elements(v: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return v[0] + x, x * v[1], (v * 2)[1] - x, v.sum() * x, torch.arange(3)[1] * x


def assert_is_as_in_eager_mode(function: Callable[..., Any], number: torch.Tensor, x: torch.Tensor, **options: Any):
    def arguments() -> list[torch.Tensor]:
        return [number.clone(), x.to(DEVICE, copy=True)]

    eagerly, compiled = arguments(), arguments()
    expected = tree_leaves(function(*eagerly))
    got = tree_leaves(torch.compile(function, fullgraph=True, **options)(*compiled))
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.device == theirs.device
        assert_close(mine, theirs, equal_nan=True)
    assert_close(compiled, eagerly, equal_nan=True)


X = torch.linspace(0.5, 2, 6).view(2, 3)
THREE = torch.tensor(3.0)


@pytest.mark.parametrize("function", [elementwise, written, mutated], ids=lambda function: function.__name__)
def test_the_device_computes_with_a_number_of_the_cpu(function):
    assert_is_as_in_eager_mode(function, THREE, X)


def test_the_device_computes_with_an_element_of_the_cpu():
    assert_is_as_in_eager_mode(elements, torch.tensor([3.0, 4.0]), X)


@pytest.mark.full
def test_the_device_computes_with_a_number_of_the_cpu_if_sizes_are_dynamic_or_nothing_is_trained():
    assert_is_as_in_eager_mode(elementwise, THREE, X, dynamic=True)
    torch._dynamo.reset()
    with torch.inference_mode():
        assert_is_as_in_eager_mode(elementwise, THREE, X)


def test_a_number_of_the_cpu_gets_its_gradient():
    def gradients(run: Callable[..., Any]) -> list[torch.Tensor]:
        s, x = torch.tensor(3.0, requires_grad=True), X.to(DEVICE).requires_grad_()
        (run(s, x) * x).sum().backward()
        return [s.grad, x.grad]

    def function(s: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return s * x.sin() + s / x

    got, expected = gradients(torch.compile(function, fullgraph=True)), gradients(function)
    assert got[0].device.type == "cpu"
    assert_close(got, expected)


ELEMENTWISE = [op for op in op_db if isinstance(op, BinaryUfuncInfo) and not op.name.startswith("jiterator")]


@pytest.mark.full
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.formatted_name)
def test_an_elementwise_operator_takes_a_number_first(op):
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    samples = op.sample_inputs("cpu", dtype)
    sample = next(s for s in samples if isinstance(s.args[0], torch.Tensor) and s.args[0].dim() > 0 and s.input.numel())
    number = sample.input.flatten()[0].clone()

    def function(s: torch.Tensor, x: torch.Tensor) -> Any:
        return op.op(s, x, **sample.kwargs)

    try:
        function(number, sample.args[0].to(DEVICE))
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"not in eager mode: {error}"[:100])
    if op.name == "nextafter":
        pytest.skip("PyTorch's tracing refuses it for CUDA as well: FakeTensorDeviceMismatchError")
    assert_is_as_in_eager_mode(function, number, sample.args[0])
