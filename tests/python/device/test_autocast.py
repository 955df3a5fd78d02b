"""Mixed precision with torch.autocast("openreg")."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


@pytest.mark.openreg_only
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_the_module_has_autocast_with_the_device_filled_in(dtype):
    x = torch.randn(3, 3, device=DEVICE)
    with torch.openreg.amp.autocast(dtype=dtype):
        assert (x @ x).dtype == (dtype or torch.float16)
        with torch.openreg.amp.autocast(enabled=False):
            assert (x @ x).dtype == torch.float32

    @torch.openreg.amp.autocast()
    def product():
        return x @ x

    assert product().dtype == torch.float16


@pytest.mark.openreg_only
@pytest.mark.parametrize("cast_inputs", [None, torch.float32])
def test_functions_of_autograd_have_autocast_in_forward_and_backward(cast_inputs):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.openreg.amp.custom_fwd(cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, torch.is_autocast_enabled(DEVICE)))
            return a @ b

        @staticmethod
        @torch.openreg.amp.custom_bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled(DEVICE)))
            return grad @ b.t(), a.t() @ grad

    a, b = (torch.randn(3, 3, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(2))
    with torch.openreg.amp.autocast():
        out = Product.apply(a, b)
    out.sum().backward()
    dtype = cast_inputs or torch.float16
    assert out.dtype == dtype
    assert seen == [(dtype, cast_inputs is None)] * 2
    assert a.grad.dtype == torch.float16


def test_regions_of_other_devices_change_nothing():
    x, y = torch.randn(3, 3, device=DEVICE), torch.randn(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype == torch.float32
        with torch.autocast(DEVICE, torch.float16):
            assert (x @ x).dtype == torch.float16 and (y @ y).dtype == torch.bfloat16


def test_float64_and_integers_are_left_alone():
    x, n = torch.randn(3, 3, device=DEVICE, dtype=torch.float64), torch.ones(3, 3, device=DEVICE, dtype=torch.int)
    with torch.autocast(DEVICE):
        assert (x @ x).dtype == torch.float64 and (n @ n).dtype == torch.int


def casts_of(outputs):
    """The autograd nodes that cast the weight for these products."""
    return {output.grad_fn.next_functions[1][0] for output in outputs}


@pytest.mark.parametrize("cache", [True, False])
def test_a_weight_is_cast_once_in_a_region_where_the_cache_is_on(cache):
    x = torch.arange(9.0, device=DEVICE).view(3, 3).half()
    w = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, cache_enabled=cache):
        assert torch.is_autocast_cache_enabled() == cache
        outputs = [torch.mm(x, w) for _ in range(3)]
        with torch.autocast(DEVICE, cache_enabled=cache):  # a region within shares what was cast
            outputs.append(torch.mm(x, w))
        assert len(casts_of(outputs)) == (1 if cache else 4)
    sum(output.float().sum() for output in outputs).backward()
    assert_close(w.grad, 4 * x.float().t() @ torch.ones_like(w))


def test_the_cache_is_empty_after_a_region():
    x, w = torch.eye(3, device=DEVICE), torch.ones(3, 3, device=DEVICE, requires_grad=True)
    for value in (1, 2):
        with torch.no_grad():
            w.fill_(value)
        with torch.autocast(DEVICE):
            assert torch.equal(torch.mm(x, w).float(), w)


@pytest.mark.parametrize("backward_inside", [True, False])
def test_the_backward_pass_computes_in_the_dtypes_of_the_forward_pass(backward_inside):
    seen = []

    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append((gradient.dtype, torch.is_autocast_enabled(DEVICE)))
            return gradient

    x, w = (torch.randn(3, 3, device=DEVICE, requires_grad=True) for _ in range(2))
    with torch.autocast(DEVICE):
        loss = Spy.apply(x @ w).float().sum()
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    assert seen == [(torch.float16, backward_inside)]  # autograd's thread has the state of the one that called it
    assert x.grad.dtype == w.grad.dtype == torch.float32
    assert_close(x.grad, torch.ones(3, 3, device=DEVICE) @ w.half().float().t(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_parts_are_computed_again_under_the_same_autocast(use_reentrant):
    seen = []

    def part(x):
        seen.append(torch.get_autocast_dtype(DEVICE) if torch.is_autocast_enabled(DEVICE) else None)
        return x @ x

    x = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=use_reentrant)
    out.float().sum().backward()
    assert seen == [torch.bfloat16] * 2


@pytest.mark.parametrize("inside", [True, False])
def test_compiled_functions_compute_in_the_low_dtype(inside):
    def product(x, w):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=inside):
            return torch.mm(x, w), torch.softmax(x, 0)

    x, w = (torch.randn(3, 3, device=DEVICE, requires_grad=True) for _ in range(2))
    compiled = torch.compile(
        product if inside else lambda x, w: (torch.mm(x, w), torch.softmax(x, 0)), backend="aot_eager"
    )
    with torch.autocast(DEVICE, torch.bfloat16, enabled=not inside):
        got, softmax = compiled(x, w)
    assert got.dtype == torch.bfloat16 and softmax.dtype == torch.float32
    assert_close(got, x.bfloat16() @ w.bfloat16())
    got.float().sum().backward()
    assert x.grad.dtype == torch.float32


def test_custom_operators_take_casts_for_autocast():
    with torch.library._scoped_library("test_autocast", "FRAGMENT"):

        @torch.library.custom_op("test_autocast::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        torch.library.register_autocast("test_autocast::double", DEVICE, torch.bfloat16)
        x = torch.randn(3, device=DEVICE)
        assert double(x).dtype == torch.float32
        with torch.autocast(DEVICE):
            assert double(x).dtype == torch.bfloat16
