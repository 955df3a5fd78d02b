"""Function transforms: `torch.func` and forward-mode differentiation on the device.

`vmap`, `grad`, `jvp` and their compositions wrap tensors and dispatch to the ordinary operators. They find in-place
operators and views of a backend that do not follow PyTorch's schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import expect_error


def polynomial(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum() + x.sin().prod()


TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "grad": torch.func.grad(polynomial),
    "hessian": torch.func.hessian(polynomial),
    "jacrev": torch.func.jacrev(lambda x: x.outer(x).cumsum(0)),
    "jacfwd": torch.func.jacfwd(lambda x: x.outer(x).flip(0)),
    "vmap": torch.vmap(lambda x: x * 2 + x.abs(), in_dims=0),
    "vmap_of_grad": lambda x: torch.vmap(torch.func.grad(polynomial))(torch.stack([x, x * 2])),
    "vmap_of_product": lambda x: torch.vmap(torch.dot)(x.outer(x), x.outer(x).t()),
    "vmap_in_place": lambda x: torch.vmap(lambda y: y.clone().mul_(3).add_(y))(torch.stack([x, x])),
    "vmap_of_index": lambda x: torch.vmap(lambda y: y[[0, 2]].flip(0), in_dims=1)(x.outer(x)),
    "jvp": lambda x: torch.func.jvp(lambda y: y.sigmoid() * y, (x,), (torch.ones_like(x),)),
    "vjp": lambda x: torch.func.vjp(lambda y: y.cumsum(0), x)[1](torch.ones_like(x))[0],
    "linearize": lambda x: torch.func.linearize(lambda y: y.tanh().sum(), x)[1](torch.ones_like(x)),
    "functionalize": torch.func.functionalize(lambda x: x.clone().view(2, 2).t()[0].add_(1)),
    "jacobian": lambda x: torch.autograd.functional.jacobian(lambda y: y.exp() * y[0], x),
}


@check(level=Level.COMPLETE, hook="dispatch of the operators", cases=tuple(TRANSFORMS))
def transform_follows_the_cpu(device: Device, case: str) -> None:
    """A transform of a function gives the CPU's results.

    Operators without a batching rule run in a loop over views of the batch.
    """
    x = torch.tensor([0.5, -1.0, 2.0, 0.25])
    got, wanted = TRANSFORMS[case](x.to(device.this)), TRANSFORMS[case](x)
    got, wanted = (each if isinstance(each, tuple) else (each,) for each in (got, wanted))
    for mine, expected in zip(got, wanted, strict=True):
        device.cpu_equal(mine, expected, rtol=1e-4, atol=1e-5)


@check(level=Level.COMPLETE, hook="dispatch of the operators")
def forward_mode_computes_tangents(device: Device) -> None:
    """Dual tensors carry tangents through operators, views and in-place operators of the device.

    The derivative formulas are PyTorch's; they call the backend's operators.
    """
    import torch.autograd.forward_ad as forward

    def tangent(where: torch.device | str) -> Any:
        x, t = torch.tensor([1.0, 2.0, 3.0], device=where), torch.tensor([1.0, 0.0, -1.0], device=where)
        with forward.dual_level():
            y = forward.make_dual(x, t).exp() * 2
            y[1:].mul_(3)
            result = forward.unpack_dual(y.cumsum(0)).tangent
        assert result is not None
        return result.clone()

    device.cpu_equal(tangent(device.this), tangent("cpu"), rtol=1e-5, atol=1e-5)


@check(level=Level.COMPLETE, hook="dispatch of the operators")
def gradients_for_each_sample(device: Device) -> None:
    """`functional_call` under `vmap` and `grad` gives a gradient for each sample; an ensemble of models runs by `vmap`.

    These are the two programs that `torch.func` was made for.
    """

    def result(where: torch.device | str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)) for _ in range(3)]
        x, y = torch.randn(5, 3).to(where), torch.randn(5, 1).to(where)
        models = [model.to(where) for model in models]
        parameters = {name: each.detach() for name, each in models[0].named_parameters()}

        def loss(p: dict[str, torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> Any:
            return ((torch.func.functional_call(models[0], p, (a,)) - b) ** 2).sum()

        gradients = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        stacked, buffers = torch.func.stack_module_state(models)
        ensemble = torch.vmap(lambda p, b: torch.func.functional_call(models[0], (p, b), (x,)))(stacked, buffers)
        return [*gradients.values(), ensemble]

    for got, wanted in zip(result(device.this), result("cpu"), strict=True):
        device.cpu_equal(got, wanted, rtol=1e-4, atol=1e-5)


@check(level=Level.COMPLETE, hook="generators under vmap")
def randomness_under_vmap_is_chosen(device: Device) -> None:
    """`vmap` with `randomness` "same" repeats the numbers, "different" does not, and "error" raises.

    The backend's random operators run below the batching key.
    """
    x = torch.zeros(4, 100, device=device.this)
    same = torch.vmap(lambda row: row + torch.rand_like(row), randomness="same")(x)
    different = torch.vmap(lambda row: row + torch.rand_like(row), randomness="different")(x)
    assert torch.equal(same[0].cpu(), same[3].cpu()) and not torch.equal(different[0].cpu(), different[3].cpu())
    expect_error(lambda: torch.vmap(lambda row: row + torch.rand_like(row))(x), RuntimeError, "random")
