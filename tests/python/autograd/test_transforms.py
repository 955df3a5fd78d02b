"""torch.func and forward-mode differentiation, with the CPU's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
from devices import DEVICE
from torch.func import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)
from torch.testing import assert_close
from torch.utils._pytree import tree_map

pytestmark = pytest.mark.any_device

GENERATOR = torch.Generator().manual_seed(0)
W, X = torch.randn(4, 4, generator=GENERATOR), torch.randn(4, generator=GENERATOR)


def function(w: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.tanh(w @ x) * x.norm()


TRANSFORMS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "grad": lambda f, x: grad(lambda a: f(a).sum())(x),
    "grad and value": lambda f, x: grad_and_value(lambda a: f(a).sum())(x),
    "vjp": lambda f, x: vjp(f, x)[1](x),
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacrev in chunks": lambda f, x: jacrev(f, chunk_size=2)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "hessian": lambda f, x: hessian(lambda a: f(a).sum())(x),
    "reverse over forward": lambda f, x: jacrev(jacfwd(f))(x),
    "linearize": lambda f, x: linearize(f, x)[1](x),
    "vmap": lambda f, x: vmap(f)(torch.stack([x, 2 * x])),
    "vmap in chunks": lambda f, x: vmap(f, chunk_size=2)(torch.stack([x, 2 * x, 3 * x])),
    "vmap of a column": lambda f, x: vmap(f, in_dims=1, out_dims=1)(torch.stack([x, 2 * x], 1)),
    "vmap twice": lambda f, x: vmap(vmap(torch.mul, (None, 0)), (0, None))(x, x),
    "vmap of grad": lambda f, x: vmap(grad(lambda a: f(a).sum()))(torch.stack([x, 2 * x])),
    "functional jacobian": lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True),
    "functional hvp": lambda f, x: torch.autograd.functional.hvp(lambda a: f(a).sum(), x, x),
}


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_what_it_gives_on_the_cpu(name):
    expected = TRANSFORMS[name](function(W), X)
    got = TRANSFORMS[name](function(W.to(DEVICE)), X.to(DEVICE))
    assert_close(tree_map(lambda t: t.cpu(), got), expected, rtol=1e-4, atol=1e-5)


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: x + torch.rand(4, device=x.device),
    "randn_like": lambda x: torch.randn_like(x),
    "randint": lambda x: x + torch.randint(1000, (4,), device=x.device),
    "randperm": lambda x: x + torch.randperm(50, device=x.device)[:4],
    "bernoulli": lambda x: torch.bernoulli(torch.full((64,), 0.5, device=x.device)) + x[0],
    "normal": lambda x: torch.normal(0.0, 1.0, (4,), device=x.device) + x,
    "multinomial": lambda x: torch.multinomial(torch.ones(100, device=x.device), 20) + x[0],
    "dropout": lambda x: F.dropout(torch.ones(64, device=x.device)) + x[0],
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_in_vmap_are_the_same_or_different_as_asked(name):
    x = torch.zeros(3, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        vmap(RANDOM[name])(x)
    same, different = (vmap(RANDOM[name], randomness=mode)(x) for mode in ("same", "different"))
    assert same.device.type == different.device.type == DEVICE
    assert same[0].equal(same[1]) and same[0].equal(same[2])
    assert not different[0].equal(different[1])
    torch.manual_seed(9)
    first = vmap(RANDOM[name], randomness="different")(x)
    torch.manual_seed(9)
    assert vmap(RANDOM[name], randomness="different")(x).equal(first)


def test_tangents_follow_copies_between_devices():
    with fwAD.dual_level():
        dual = fwAD.make_dual(X.to(f"{DEVICE}:0"), W[0].to(f"{DEVICE}:0"))
        moved = fwAD.unpack_dual(dual.to(f"{DEVICE}:1").cpu() * 2)
        assert_close(moved.tangent, 2 * W[0])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "mm", "matmul", "maximum"])
def test_a_missing_tangent_counts_as_zero(name):
    operator = getattr(torch, name)

    def tangent(device: str) -> torch.Tensor:
        w = W.to(device)
        return jvp(lambda x: operator(x, w) + operator(w, x), (w,), (w,))[1].cpu()

    assert_close(tangent(DEVICE), tangent("cpu"))
