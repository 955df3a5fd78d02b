"""Mixed precision with torch.autocast("openreg")."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_run_in_the_low_dtype(dtype):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    with torch.autocast("openreg", dtype):
        got = a.to("openreg") @ b.to("openreg")
    assert got.dtype == dtype
    assert_close(got.cpu(), a.to(dtype) @ b.to(dtype))


def test_reductions_run_in_float32():
    x = torch.randn(4, device="openreg", dtype=torch.float16)
    with torch.autocast("openreg", torch.float16):
        assert torch.softmax(x, 0).dtype == torch.float32
        assert torch.norm(x).dtype == torch.float32


def test_mixed_operands_are_promoted():
    x = torch.randn(3, device="openreg")
    with torch.autocast("openreg", torch.float16):
        assert torch.addcmul(x, x.half(), x.half()).dtype == torch.float32


def test_the_default_dtype_is_half():
    assert torch.get_autocast_dtype("openreg") == torch.float16
    x = torch.randn(3, 3, device="openreg")
    with torch.autocast("openreg"):
        assert (x @ x).dtype == torch.float16


def test_an_unsupported_dtype_warns_and_switches_autocast_off():
    x = torch.randn(3, 3, device="openreg")
    with pytest.warns(UserWarning, match="In openreg autocast, but the target dtype is not supported"):
        context = torch.autocast("openreg", torch.float32)
    with context:
        assert (x @ x).dtype == torch.float32


def test_binary_cross_entropy_is_refused():
    x = torch.rand(3, device="openreg")
    with torch.autocast("openreg"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        nn.functional.binary_cross_entropy(x, x)


def test_a_training_step_with_a_grad_scaler():
    torch.manual_seed(0)
    model = nn.Linear(8, 4).to("openreg")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("openreg")
    x, y = torch.randn(16, 8, device="openreg"), torch.randn(16, 4, device="openreg")
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast("openreg", torch.float16):
                loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert model.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_the_module_has_autocast_with_the_device_filled_in(dtype):
    x = torch.randn(3, 3, device="openreg")
    with torch.openreg.amp.autocast(dtype=dtype):
        assert (x @ x).dtype == (dtype or torch.float16)
        with torch.openreg.amp.autocast(enabled=False):
            assert (x @ x).dtype == torch.float32

    @torch.openreg.amp.autocast()
    def product():
        return x @ x

    assert product().dtype == torch.float16


def test_the_module_has_a_scaler_with_the_device_filled_in():
    weight = torch.ones(3, device="openreg", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.openreg.amp.GradScaler(init_scale=4.0)
    scaler.scale(weight.sum()).backward()
    assert weight.grad.tolist() == [4, 4, 4]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0]
    optimizer.zero_grad()
    scaler.scale(weight.sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0] and scaler.get_scale() == 2


@pytest.mark.parametrize("cast_inputs", [None, torch.float32])
def test_functions_of_autograd_have_autocast_in_forward_and_backward(cast_inputs):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.openreg.amp.custom_fwd(cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, torch.is_autocast_enabled("openreg")))
            return a @ b

        @staticmethod
        @torch.openreg.amp.custom_bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled("openreg")))
            return grad @ b.t(), a.t() @ grad

    a, b = (torch.randn(3, 3, device="openreg", dtype=torch.float16, requires_grad=True) for _ in range(2))
    with torch.openreg.amp.autocast():
        out = Product.apply(a, b)
    out.sum().backward()
    dtype = cast_inputs or torch.float16
    assert out.dtype == dtype
    assert seen == [(dtype, cast_inputs is None)] * 2
    assert a.grad.dtype == torch.float16
