"""Automatic mixed precision: `torch.autocast` and `torch.amp.GradScaler`.

`torch.autocast("<name>")` asks the module for `get_amp_supported_dtype`, and then relies on kernels at the key
`AutocastPrivateUse1`: PyTorch's wrappers for the operators of its lists (`ATen/autocast_mode.h`), and a fallthrough
for all others. With the fallthrough alone autocast is accepted and does nothing, without an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from backend_conformance import Device, Level, check, missing, not_applicable
from backend_conformance.evidence import in_threads, refused

_Operator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Each gets two float32 tensors of the shape (4, 4).
_LOWERED: dict[str, _Operator] = {
    "mm": torch.mm,
    "matmul": torch.matmul,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "baddbmm": lambda a, b: torch.baddbmm(a[None], a[None], b[None]),
    "mv": lambda a, b: torch.mv(a, b[0]),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "linear": functional.linear,
    "conv1d": lambda a, b: functional.conv1d(a[None], b[:, :, None]),
    "conv2d": lambda a, b: functional.conv2d(a[None, None], b[None, None, :2, :2]),
    "conv_transpose2d": lambda a, b: functional.conv_transpose2d(a[None, None], b[None, None, :2, :2]),
    "scaled_dot_product_attention": lambda a, b: functional.scaled_dot_product_attention(a[None], b[None], b[None]),
}
# Each gets two tensors of the lower precision.
_RAISED: dict[str, _Operator] = {
    "exp": lambda a, b: torch.exp(a),
    "log": lambda a, b: torch.log(a),
    "pow": lambda a, b: torch.pow(a, 2.0),
    "rsqrt": lambda a, b: torch.rsqrt(a),
    "softplus": lambda a, b: functional.softplus(a),
    "layer_norm": lambda a, b: functional.layer_norm(a, (4,)),
    "mse_loss": functional.mse_loss,
    "cosine_similarity": functional.cosine_similarity,
    "softmax": lambda a, b: torch.softmax(a, 0),
    "log_softmax": lambda a, b: torch.log_softmax(a, 0),
    "nll_loss": lambda a, b: functional.nll_loss(a, torch.zeros(4, dtype=torch.int64, device=a.device)),
    "sum": lambda a, b: torch.sum(a),
    "prod": lambda a, b: torch.prod(a),
    "cumsum": lambda a, b: torch.cumsum(a, 0),
    "norm": lambda a, b: torch.norm(a),
}
# Each gets a tensor of the lower precision and one of float32, and returns float32.
_PROMOTED: dict[str, _Operator] = {
    "addcmul": lambda a, b: torch.addcmul(a, b, a),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "atan2": torch.atan2,
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "cross": lambda a, b: torch.cross(a[:, :3], b[:, :3], dim=1),
    "scatter_add": lambda a, b: torch.scatter_add(a, 0, torch.zeros(4, 4, dtype=torch.int64, device=a.device), b),
}


@check(level=Level.TRAINS, hook="AT_FORALL_LOWER_PRECISION_FP, lower_precision_fp", cases=tuple(_LOWERED))
def products_are_computed_in_lower_precision(device: Device, case: str) -> None:
    """Products and convolutions of float32 tensors are computed in the lower precision, and their results have it."""
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        result = _LOWERED[case](a, b)
    assert result.dtype == dtype, f"the result of {case} is {result.dtype}: autocast is accepted and does nothing"
    expected = _LOWERED[case](a.cpu(), b.cpu())
    device.cpu_equal(result.float(), expected, atol=0.1, rtol=0.05)
    assert _LOWERED[case](a, b).dtype == torch.float32, "autocast is on after its context"


@check(
    level=Level.TRAINS,
    hook="AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE",
    cases=tuple(_RAISED),
)
def sums_and_losses_are_computed_in_float32(device: Device, case: str) -> None:
    """Exponentials, norms, sums and losses of lower precision are computed in float32, and their results have it."""
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        result = _RAISED[case](a.to(dtype), b.to(dtype))
    assert result.dtype == torch.float32, f"the result of {case} is {result.dtype}"
    expected = _RAISED[case](a.to(dtype).float().cpu(), b.to(dtype).float().cpu())
    device.cpu_equal(result, expected, atol=1e-4, rtol=1e-4)


@check(level=Level.TRAINS, hook="AT_FORALL_PROMOTE", cases=tuple(_PROMOTED))
def mixed_arguments_are_promoted(device: Device, case: str) -> None:
    """Operators that need one dtype get the widest of their arguments'. Without autocast some of them raise."""
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        result = _PROMOTED[case](a.to(dtype), b)
    assert result.dtype == torch.float32, f"the result of {case} is {result.dtype}"
    device.cpu_equal(result, _PROMOTED[case](a.to(dtype).float().cpu(), b.cpu()), atol=1e-3, rtol=1e-3)


@check(level=Level.TRAINS, hook="a fallthrough as the fallback of the key AutocastPrivateUse1")
def other_operators_keep_their_dtype(device: Device) -> None:
    """Operators of no list keep the dtype of their arguments, also integers; types promote as usual."""
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        assert (a.to(dtype) + 1).dtype == dtype
        assert (a + b).dtype == torch.float32
        assert (a.to(dtype) + b).dtype == torch.float32
        assert torch.relu(a.to(dtype)).dtype == dtype and torch.relu(a).dtype == torch.float32
        assert (torch.arange(3, device=device.this) * 2).dtype == torch.int64
        assert a.t().contiguous().dtype == torch.float32 and a.max().dtype == torch.float32


@check(level=Level.TRAINS, hook="get_amp_supported_dtype of the module")
def dtypes_of_autocast_are_listed(device: Device) -> None:
    """`get_amp_supported_dtype()` lists the dtypes; each works, and another one is refused with a warning.

    It is the one function of the module that `torch.autocast` checks by name.
    """
    if device.key != "PrivateUse1":
        not_applicable("PyTorch itself knows the dtypes of this device")
    listed = list(device.module.get_amp_supported_dtype())
    assert listed and all(isinstance(each, torch.dtype) for each in listed), f"get_amp_supported_dtype() is {listed}"
    x = torch.ones(2, 2, device=device.this)
    for dtype in listed:
        with torch.autocast(device.name, dtype=dtype):
            assert (x @ x).dtype == dtype
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with torch.autocast(device.name, dtype=torch.int32):
            assert (x @ x).dtype == torch.float32
    assert found, "autocast to int32 does not warn"
    assert torch.get_autocast_dtype(device.name) in (torch.float16, torch.bfloat16)
    with torch.autocast(device.name):
        assert (x @ x).dtype == torch.get_autocast_dtype(device.name), "autocast without a dtype does nothing"


@check(level=Level.TRAINS, hook="the key AutocastPrivateUse1")
def contexts_nest_and_belong_to_the_thread(device: Device) -> None:
    """A context can switch autocast off within another, and other threads are not affected."""
    a, b, dtype = _inputs(device)
    seen: list[torch.dtype] = []
    with torch.autocast(device.name, dtype=dtype):
        with torch.autocast(device.name, enabled=False):
            assert (a @ b).dtype == torch.float32
        assert (a @ b).dtype == dtype
        in_threads(lambda: seen.append((a @ b).dtype))
    assert seen == [torch.float32], "another thread has autocast, too"
    assert not torch.is_autocast_enabled(device.name)


@check(level=Level.TRAINS, hook="at::autocast::cached_cast and derivatives of casts")
def gradients_of_parameters_stay_in_float32(device: Device) -> None:
    """Parameters of float32 get gradients of float32 with about the right values."""
    torch.manual_seed(0)
    host = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    there = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    there.load_state_dict(host.state_dict())
    there.to(device.this)
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    functional.cross_entropy(host(x), y).backward()
    with torch.autocast(device.name, dtype=_dtype(device)):
        # Twice the same weights: their casts are cached, and the derivatives of both uses add up.
        logits = there(x.to(device.this))
        loss = functional.cross_entropy(logits, y.to(device.this))
    assert logits.dtype == _dtype(device) and loss.dtype == torch.float32
    loss.backward()
    for expected, found in zip(host.parameters(), there.parameters(), strict=True):
        assert expected.grad is not None and found.grad is not None
        assert found.grad.dtype == torch.float32
        device.cpu_equal(found.grad, expected.grad, atol=0.01, rtol=0.1)


@check(level=Level.COMPLETE, hook="torch.amp.custom_fwd and custom_bwd")
def functions_of_users_follow_autocast(device: Device) -> None:
    """`torch.amp.custom_fwd(device_type="<name>", cast_inputs=...)` casts and switches autocast off inside."""
    seen: list[torch.dtype] = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device.name, cast_inputs=torch.float32)
        def forward(ctx, a, b):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(a, b)
            result = a @ b
            seen.append(result.dtype)
            return result

        @staticmethod
        @torch.amp.custom_bwd(device_type=device.name)
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            a, b = ctx.saved_tensors
            return gradient @ b.t(), a.t() @ gradient

    product: Any = Product
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        half = a.to(dtype).requires_grad_()
        product.apply(half, b).sum().backward()
    assert seen == [torch.float32]
    assert half.grad is not None and half.grad.dtype == dtype


@check(level=Level.COMPLETE, hook="binary_cross_entropy at the key AutocastPrivateUse1")
def binary_cross_entropy_is_refused(device: Device) -> None:
    """`binary_cross_entropy` raises under autocast, as on CUDA, and says what to use instead.

    Its derivative overflows in lower precision.
    """
    a, b, dtype = _inputs(device)
    with torch.autocast(device.name, dtype=dtype):
        refused(lambda: functional.binary_cross_entropy(a.sigmoid(), b.sigmoid()), "binary_cross_entropy")
        functional.binary_cross_entropy_with_logits(a, b.sigmoid())


@check(level=Level.COMPLETE, hook="all of AT_FORALL_* of ATen/autocast_mode.h")
def all_operators_of_the_lists_are_registered(device: Device) -> None:
    """Each operator that has a kernel for autocast on CUDA has one on the device."""
    if device.key != "PrivateUse1":
        not_applicable("PyTorch itself registers the lists of this device")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [
        name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and "cudnn" not in name
    ]
    lacking = [name for name in names if has(name, "AutocastCUDA") and not has(name, "AutocastPrivateUse1")]
    if lacking:
        missing(f"{len(lacking)} operators have no kernel at AutocastPrivateUse1: {', '.join(lacking[:8])}")


@check(level=Level.TRAINS, hook="aten::_amp_foreach_non_finite_check_and_unscale_, aten::_amp_update_scale_")
def scaler_unscales_and_steps(device: Device) -> None:
    """`torch.amp.GradScaler("<name>")` scales the loss, unscales the gradients and steps; then the scale grows."""
    parameter = nn.Parameter(torch.ones(3, device=device.this))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler(device.name, init_scale=8.0, growth_factor=2.0, growth_interval=2)
    for turn in range(2):
        optimizer.zero_grad()
        loss = scaler.scale((parameter * torch.tensor([1.0, 2.0, 3.0], device=device.this)).sum())
        loss.backward()
        scaler.unscale_(optimizer)
        assert parameter.grad is not None
        device.cpu_equal(parameter.grad, [1.0, 2.0, 3.0])
        scaler.step(optimizer)
        scaler.update()
        device.cpu_equal(parameter, [1.0 - (turn + 1) * step for step in (1.0, 2.0, 3.0)])
    assert scaler.get_scale() == 16.0, f"after two steps the scale is {scaler.get_scale()} instead of 16"


@check(
    level=Level.TRAINS,
    hook="aten::_amp_foreach_non_finite_check_and_unscale_",
    cases=("inf", "-inf", "nan"),
)
def scaler_leaves_out_steps_with_infinite_gradients(device: Device, case: str) -> None:
    """If any element of a gradient is infinite or NaN, the step is skipped and the scale halves."""
    parameters = [nn.Parameter(torch.ones(3, 4, device=device.this)), nn.Parameter(torch.ones(5, device=device.this))]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler(device.name, init_scale=8.0)
    scaler.scale(parameters[0].sum() + parameters[1].sum()).backward()
    assert parameters[1].grad is not None
    parameters[1].grad[4] = float(case)
    scaler.step(optimizer)
    scaler.update()
    device.cpu_equal(parameters[0], torch.ones(3, 4))
    device.cpu_equal(parameters[1], torch.ones(5))
    assert scaler.get_scale() == 4.0


@check(level=Level.COMPLETE, hook="aten::_amp_foreach_non_finite_check_and_unscale_", needs=("several_devices",))
def scaler_takes_gradients_of_several_devices(device: Device) -> None:
    """One scaler unscales gradients on several devices: an infinite one on any device skips the step on all."""
    parameters = [nn.Parameter(torch.ones(2, device=where)) for where in (device.this, device.other)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler(device.name, init_scale=8.0)
    for bad in (False, True):
        optimizer.zero_grad()
        scaler.scale(parameters[0].sum() + parameters[1].sum().to(device.this)).backward()
        if bad:
            assert parameters[1].grad is not None
            parameters[1].grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    for each in parameters:
        device.cpu_equal(each, [0.0, 0.0])
    assert scaler.get_scale() == 4.0


def _dtype(device: Device) -> torch.dtype:
    """A dtype of lower precision that the device supports."""
    if device.key != "PrivateUse1":
        return torch.bfloat16
    listed = list(device.module.get_amp_supported_dtype())
    for dtype in (torch.bfloat16, torch.float16):
        if dtype in listed:
            return dtype
    missing(f"get_amp_supported_dtype() lists neither bfloat16 nor float16, but {listed}")


def _inputs(device: Device) -> tuple[torch.Tensor, torch.Tensor, torch.dtype]:
    numbers = torch.linspace(0.1, 2.0, 32).view(2, 4, 4).to(device.this)
    return numbers[0], numbers[1], _dtype(device)
