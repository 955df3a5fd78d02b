"""Normalisation by the root of the mean square equals PyTorch's composite form on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.testing import assert_close
from waits import assert_close_to

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]


def compare(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.stride() == expected.stride()
    assert_close_to(got, expected)


def run(x: torch.Tensor, shape: tuple[int, ...], weight: torch.Tensor | None, eps: float | None) -> list[torch.Tensor]:
    leaves = [t.detach().requires_grad_() for t in (x, weight) if t is not None]
    y = F.rms_norm(leaves[0], shape, leaves[1] if weight is not None else None, eps)
    y.backward(torch.ones_like(y).cumsum(0))
    return [y.detach(), *(leaf.grad for leaf in leaves)]


INPUTS = {
    "rows": (lambda: torch.randn(6, 8), (8,)),
    "planes": (lambda: torch.randn(2, 3, 4), (3, 4)),
    "all": (lambda: torch.randn(3, 4), (3, 4)),
    "strided": (lambda: torch.randn(6, 16)[::2, ::2], (8,)),
    "transposed": (lambda: torch.randn(8, 6).t(), (8,)),
    "channels last": (lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), (5,)),
    "no rows": (lambda: torch.randn(0, 4), (4,)),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("eps", [None, 0.1])
def test_rms_norm_and_its_gradients_equal_the_cpus(name, weighted, eps, no_waits):
    make, shape = INPUTS[name]
    x = make()
    weight = torch.randn(shape) if weighted else None
    expected = run(x, shape, weight, eps)
    device_x, device_weight = (t if t is None else t.to(DEVICE, non_blocking=True) for t in (x, weight))
    got = run(device_x, shape, device_weight, eps)
    for g, e in zip(got, expected, strict=True):
        compare(g, e)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_sums_are_wide_where_elements_are_narrow(dtype):
    x, weight = torch.randn(4, 4096).to(dtype), torch.randn(4096).to(dtype)
    expected = run(x, (4096,), weight, None)
    for g, e in zip(run(x.to(DEVICE), (4096,), weight.to(DEVICE), None), expected, strict=True):
        compare(g, e)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_eps_has_the_default_of_the_type_that_is_computed_with(dtype):
    x = torch.full((2, 4), 1e-7).to(dtype)
    assert_close(F.rms_norm(x.to(DEVICE), (4,)).cpu(), F.rms_norm(x, (4,)))


@pytest.mark.openreg_only
def test_forward_and_backward_are_one_command_each():
    x = torch.randn(4, 8, device=DEVICE, requires_grad=True)
    grad = torch.randn(4, 8, device=DEVICE)
    torch.openreg.reset_launch_stats()
    y = F.rms_norm(x, (8,))
    assert torch.openreg.launch_stats()["typed"] == 1
    y.backward(grad)
    assert torch.openreg.launch_stats()["typed"] == 2


def test_the_gradient_can_be_differentiated():
    x = torch.randn(2, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    weight = torch.randn(5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, w: F.rms_norm(x, (5,), w, 0.1), (x, weight))
    assert torch.autograd.gradcheck(
        lambda x, w: F.rms_norm(x, (5,), w, 0.1), (x, weight), check_forward_ad=True, check_batched_grad=True
    )


def test_the_statistics_have_one_number_for_each_row():
    x = torch.randn(2, 3, 4).half()
    out, rstd = torch.ops.aten._fused_rms_norm(x.to(DEVICE), [3, 4], None, 0.5)
    assert out.dtype == torch.half
    assert_close(rstd.cpu(), (x.float().square().mean((1, 2), keepdim=True) + 0.5).rsqrt())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.rms_norm(x, (3,)), RuntimeError, "Given normalized_shape="),
        (lambda x: F.rms_norm(x, (4,), x[0, :3]), RuntimeError, "Expected weight to be of same shape"),
        (lambda x: F.rms_norm(x.long(), (4,)), NotImplementedError, "not implemented for 'Long'"),
        (
            lambda x: torch.ops.aten._fused_rms_norm_backward(x, x, [4], x, None, [True, False]),
            RuntimeError,
            "expected rstd of 2 elements",
        ),
    ],
)
def test_wrong_arguments_raise_at_the_call(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(2, 4, device=DEVICE))


def test_a_weight_of_another_dtype_takes_the_composite_form():
    x, weight = torch.randn(2, 4).half(), torch.randn(4)
    with pytest.warns(UserWarning, match="Mismatch dtype"):
        expected = F.rms_norm(x, (4,), weight)
        got = F.rms_norm(x.to(DEVICE), (4,), weight.to(DEVICE))
    assert_close(got.cpu(), expected)


@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.float64)])
def test_the_fused_operator_takes_a_weight_of_another_dtype(dtypes):
    def results(device):
        x = torch.linspace(-2, 3, 8).reshape(2, 4).to(device, dtypes[0]).requires_grad_()
        weight = torch.linspace(1, 2, 4).to(device, dtypes[1]).requires_grad_()
        out, rstd = torch.ops.aten._fused_rms_norm(x, [4], weight, None)
        out.backward(torch.ones_like(out).cumsum(0))
        return out, rstd, x.grad, weight.grad

    for got, expected in zip(results(DEVICE), results("cpu"), strict=True):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        assert_close(got.cpu(), expected, check_dtype=False)


def test_long_rows_are_summed_as_accurately_as_short_ones():
    x = torch.rand(2, 3_000_001) + 0.5
    x[0, 2_000_000:] *= 3
    expected = F.rms_norm(x.double(), x.shape[1:], eps=1e-6)
    error = (F.rms_norm(x.to(DEVICE), x.shape[1:], eps=1e-6).cpu() - expected).abs().max()
    assert error < 1e-6
