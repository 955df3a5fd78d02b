"""Functions with derivatives of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.autograd.function import once_differentiable
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


class Exp(torch.autograd.Function):
    """With everything that transforms ask for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent * ctx.saved_tensors[0]


class Scale(torch.autograd.Function):
    """In place, with a rule of its own for batches, not differentiable twice."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        ctx.mark_dirty(x)
        return x.mul_(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class SortRows(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sort(x, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, torch.Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None, _: None) -> torch.Tensor | None:
        assert _ is None
        (order,) = ctx.saved_tensors
        return None if gradient is None else torch.zeros_like(gradient).scatter(-1, order, gradient)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], x: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], tuple[int, int]]:
        assert info.batch_size == x.shape[in_dims[0]]
        return SortRows.apply(x.movedim(in_dims[0], 0)), (0, 0)


@pytest.fixture
def x():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(2)).to(DEVICE)


def test_backward_forward_and_batched_derivatives(x):
    e = x.exp()
    assert_close(torch.func.grad(lambda t: Exp.apply(t).sum())(x), e)
    assert_close(torch.func.jvp(Exp.apply, (x,), (x,))[1], x * e)
    assert_close(torch.func.vmap(Exp.apply)(x), e)
    assert_close(torch.func.vmap(torch.func.grad(lambda t: Exp.apply(t).sum()))(x), e)
    assert_close(torch.func.hessian(lambda t: Exp.apply(t).sum())(x[0]), e[0].diag())


def test_an_input_is_changed_in_place():
    a = torch.ones(2, device=DEVICE, requires_grad=True)
    b = a.clone()
    version = b._version
    result = Scale.apply(b, 3.0)
    assert result is b and b._version > version
    (gradient,) = torch.autograd.grad(b.sum(), a, create_graph=True)
    assert gradient.tolist() == [3.0, 3.0]
    assert not gradient.requires_grad  # differentiable once


def test_outputs_without_derivatives_and_a_rule_for_batches(x):
    x = x.requires_grad_()
    values, order = SortRows.apply(x)
    assert values.requires_grad and not order.requires_grad
    weights = torch.arange(4.0, device=DEVICE)
    (got,) = torch.autograd.grad((values * weights).sum(), x)
    (expected,) = torch.autograd.grad((torch.sort(x, -1)[0] * weights).sum(), x)
    assert_close(got, expected)
    batched = torch.func.vmap(SortRows.apply, in_dims=1)(x.detach())
    assert_close(batched[0], x.detach().t().sort(-1)[0])


def test_a_function_runs_on_the_stream_and_the_device_of_its_forward():
    seen = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append((torch.accelerator.current_device_index(), torch.accelerator.current_stream()))
            return gradient * 2

    stream = torch.Stream(f"{DEVICE}:1")
    x = torch.ones(2, device=f"{DEVICE}:1", requires_grad=True)
    stream.wait_stream(torch.accelerator.current_stream(f"{DEVICE}:1"))
    with stream:
        y = Noted.apply(x)
    torch.accelerator.current_stream(f"{DEVICE}:1").wait_stream(stream)
    y.sum().backward()
    assert seen == [(1, stream)]
    assert x.grad.tolist() == [2.0, 2.0]
