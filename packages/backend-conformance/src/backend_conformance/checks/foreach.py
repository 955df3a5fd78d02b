"""`torch._foreach_*`: operators on lists of tensors, which optimizers use.

PyTorch lists PrivateUse1 among the devices whose optimizers use `foreach`. The kernels need not be fast (PyTorch's
slow path calls the ordinary operators), but lists with different shapes, dtypes, devices and strides must have right
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from backend_conformance import Device, Level, check

Tensors = list[torch.Tensor]
Call = Callable[[Tensors, Tensors, Tensors], Sequence[torch.Tensor] | None]

FUNCTIONS: dict[str, Call] = {
    "add_list": lambda a, b, c: torch._foreach_add(a, b, alpha=2),
    "add_scalar": lambda a, b, c: torch._foreach_add(a, 1.5),
    "add_scalars": lambda a, b, c: torch._foreach_add(a, [float(i) for i in range(len(a))]),
    "add_tensor": lambda a, b, c: torch._foreach_add(a, b[0].reshape(-1)[0].clone()),
    "sub": lambda a, b, c: torch._foreach_sub(a, b),
    "mul": lambda a, b, c: torch._foreach_mul(a, b),
    "mul_scalar": lambda a, b, c: torch._foreach_mul(a, 0.5),
    "mul_tensor": lambda a, b, c: torch._foreach_mul(a, torch.tensor(3.0, device=a[0].device)),
    "div": lambda a, b, c: torch._foreach_div(a, b),
    "div_scalars": lambda a, b, c: torch._foreach_div(a, [float(i + 1) for i in range(len(a))]),
    "addcmul": lambda a, b, c: torch._foreach_addcmul(a, b, c, value=0.5),
    "addcdiv": lambda a, b, c: torch._foreach_addcdiv(a, b, c, value=0.5),
    "addcdiv_scalars": lambda a, b, c: torch._foreach_addcdiv(a, b, c, [float(i) for i in range(len(a))]),
    "lerp": lambda a, b, c: torch._foreach_lerp(a, b, 0.25),
    "lerp_list": lambda a, b, c: torch._foreach_lerp(a, b, c),
    "pow": lambda a, b, c: torch._foreach_pow(b, 2.0),
    "sqrt": lambda a, b, c: torch._foreach_sqrt(b),
    "exp": lambda a, b, c: torch._foreach_exp(a),
    "neg": lambda a, b, c: torch._foreach_neg(a),
    "abs": lambda a, b, c: torch._foreach_abs(a),
    "reciprocal": lambda a, b, c: torch._foreach_reciprocal(b),
    "sign": lambda a, b, c: torch._foreach_sign(a),
    "maximum": lambda a, b, c: torch._foreach_maximum(a, b),
    "clamp_min": lambda a, b, c: torch._foreach_clamp_min(a, 0.1),
    "norm": lambda a, b, c: torch._foreach_norm(a),
    "norm_infinity": lambda a, b, c: torch._foreach_norm(a, float("inf")),
    "max": lambda a, b, c: torch._foreach_max(a),
    "add_": lambda a, b, c: torch._foreach_add_(a, b),
    "mul_": lambda a, b, c: torch._foreach_mul_(a, 2.0),
    "zero_": lambda a, b, c: torch._foreach_zero_(a),
    "copy_": lambda a, b, c: torch._foreach_copy_(a, b),
    "addcmul_": lambda a, b, c: torch._foreach_addcmul_(a, b, c),
    "sqrt_": lambda a, b, c: torch._foreach_sqrt_(b),
    "lerp_": lambda a, b, c: torch._foreach_lerp_(a, b, 0.5),
}


def lists(where: torch.device | str) -> tuple[Tensors, Tensors, Tensors]:
    """Three lists of tensors: large, empty, without dimensions, transposed, sliced."""
    generator = torch.Generator().manual_seed(7)

    def made(positive: bool) -> Tensors:
        whole = [torch.randn(shape, generator=generator) for shape in ((3, 4), (1000,), (), (5, 2), (6, 6), (0,))]
        if positive:
            whole = [each.abs() + 0.5 for each in whole]
        whole = [each.to(where) for each in whole]
        return [*whole[:3], whole[3].t(), whole[4][1:4, ::2], whole[5]]

    return made(False), made(True), made(True)


@check(level=Level.TRAINS, hook="aten::_foreach_*", cases=tuple(FUNCTIONS))
def foreach_follows_the_cpu(device: Device, case: str) -> None:
    """A function on lists of tensors of different shapes and strides gives the CPU's values, in place or not.

    A fused kernel that treats the list as contiguous, or takes one scalar for all, fails here.
    """
    arguments, expected_arguments = lists(device.this), lists("cpu")
    if case in ("max", "norm_infinity"):  # have no value for an empty tensor
        arguments, expected_arguments = ([each[:-1] for each in some] for some in (arguments, expected_arguments))  # type: ignore[assignment]
    result, expected = FUNCTIONS[case](*arguments), FUNCTIONS[case](*expected_arguments)
    assert (result is None) == (expected is None)
    for number, (got, wanted) in enumerate(zip(result or [], expected or [], strict=True)):
        assert got.shape == wanted.shape, f"tensor {number}: {got.shape}, on the CPU {wanted.shape}"
        device.cpu_equal(got, wanted, rtol=1e-5, atol=1e-6)
    for got_list, wanted_list in zip(arguments, expected_arguments, strict=True):
        for got, wanted in zip(got_list, wanted_list, strict=True):
            device.cpu_equal(got, wanted, rtol=1e-5, atol=1e-6)


@check(level=Level.TRAINS, hook="aten::_foreach_*")
def lists_of_several_dtypes_are_accepted(device: Device) -> None:
    """Lists with tensors of different dtypes give the CPU's results.

    The fast path of a backend must leave such lists to the slow one.
    """

    def result(where: torch.device | str) -> Tensors:
        a = [
            torch.ones(3, device=where),
            torch.ones(3, device=where, dtype=torch.int64),
            torch.ones(2, device=where).half(),
        ]
        b = [
            torch.full((3,), 2.0, device=where).half(),
            torch.full((3,), 2, device=where),
            torch.full((2,), 2.0, device=where),
        ]
        return [*torch._foreach_mul(a, b), *torch._foreach_add(a[:2], 1)]

    for got, wanted in zip(result(device.this), result("cpu"), strict=True):
        assert got.dtype == wanted.dtype
        device.cpu_equal(got, wanted, rtol=1e-5, atol=1e-6)


@check(level=Level.TRAINS, hook="aten::_foreach_*", needs=("several_devices",))
def lists_of_several_devices_are_accepted(device: Device) -> None:
    """A list whose tensors are on different devices is computed, each tensor on its own.

    `clip_grad_norm_` and optimizers of models on several devices pass such lists, or group them by device.
    """
    tensors = [torch.full((4,), 2.0, device=device.this), torch.full((4,), 3.0, device=device.other)]
    squares = torch._foreach_mul(tensors, tensors)
    assert [each.device for each in squares] == [device.this, device.other]
    device.cpu_equal(squares[0], torch.full((4,), 4.0))
    device.cpu_equal(squares[1], torch.full((4,), 9.0))
    parameters = [torch.nn.Parameter(each) for each in tensors]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    assert abs(norm.item() - 8**0.5) < 1e-5


@check(level=Level.TRAINS, hook="aten::_foreach_norm, _foreach_mul_")
def gradients_are_clipped(device: Device) -> None:
    """`clip_grad_norm_` and `clip_grad_value_` change gradients as on the CPU, with `foreach` and without.

    Training loops call them between backward and step.
    """

    def clipped(where: torch.device | str, foreach: bool) -> Tensors:
        parameters = [torch.nn.Parameter(torch.zeros(n, device=where)) for n in (3, 1, 7)]
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.arange(float(parameter.numel()), device=where) - number
        norm = torch.nn.utils.clip_grad_norm_(parameters, 2.5, foreach=foreach)
        torch.nn.utils.clip_grad_value_(parameters, 0.75, foreach=foreach)
        return [norm, *(each.grad for each in parameters if each.grad is not None)]

    for foreach in (False, True):
        for got, wanted in zip(clipped(device.this, foreach), clipped("cpu", foreach), strict=True):
            device.cpu_equal(got, wanted, rtol=1e-5, atol=1e-6)
