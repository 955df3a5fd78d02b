"""Every operator that torch.autocast treats on CUDA is treated alike on the device."""

from __future__ import annotations

import warnings

import pytest
import torch
from devices import DEVICE
from torch.testing._internal.autocast_test_lists import AutocastTestLists, TestAutocast

pytestmark = pytest.mark.any_device

# Where PyTorch's own tests look for the operators of a list; None: they are methods only.
MODULES = {"nn": torch._C._nn, "linalg": torch._C._linalg, "methods": None, "torch": torch}
DTYPES = [torch.float16, torch.bfloat16]
CUDNN = {
    "aten::_cudnn_rnn",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose",
}  # NVIDIA's library, under its own name


def in_dtype(value, dtype):
    """Arguments of PyTorch's lists, with this dtype in the place of float16."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype == torch.float16 else value
    return type(value)(in_dtype(each, dtype) for each in value) if isinstance(value, (list, tuple)) else value


def run_list(name, dtype):
    """Compares each operator of a list under autocast with the same operator on inputs that were cast by hand, bit by
    bit; returns their number."""
    entries = getattr(AutocastTestLists(torch.device(f"{DEVICE}:0")), name)
    module, run = MODULES[name.split("_")[0]], 0
    for operator, args, *rest in entries:
        if f"aten::{operator}" in CUDNN or operator == "einsum":  # the helper casts the letters of the equation too
            continue
        options = {"add_kwargs": rest[0]} if rest and isinstance(rest[0], dict) else {}
        if "builtin_promote" in name:
            options["out_type"] = rest[0]
        run_as = dtype if "fp16" in name else torch.float32
        TestAutocast()._run_autocast_outofplace(
            operator, in_dtype(args, dtype), run_as, DEVICE, module=module, amp_dtype=dtype, **options
        )
        run += 1
    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name",
    [
        "torch_fp16",
        "torch_fp32",
        "torch_expect_builtin_promote",
        "torch_need_autocast_promote",
        "methods_fp16",
        "methods_fp32",
        "methods_expect_builtin_promote",
        "nn_fp16",
        "nn_fp32",
        "linalg_fp16",
    ],
)
def test_operators_of_pytorchs_lists_compute_as_with_inputs_cast_by_hand(name, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the operators are deprecated
        assert run_list(name, dtype) > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_einsum_runs_in_the_low_dtype(dtype):
    a, b = torch.randn(2, 3, 4, device=DEVICE), torch.randn(2, 4, 5, device=DEVICE)
    with torch.autocast(DEVICE, dtype):
        got = torch.einsum("bij,bjk->bik", a, b)
    assert got.dtype == dtype
    assert torch.equal(got, torch.einsum("bij,bjk->bik", a.to(dtype), b.to(dtype)))


def test_pytorchs_lists_are_all_run():
    names = set(vars(AutocastTestLists(torch.device("cpu"))))
    (mark,) = (
        mark
        for mark in test_operators_of_pytorchs_lists_compute_as_with_inputs_cast_by_hand.pytestmark
        if mark.args[0] == "name"
    )
    assert names == {*mark.args[1], "banned"}


@pytest.mark.openreg_only
def test_every_operator_that_cuda_registers_is_registered():
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    cuda, ours = set(registered("AutocastCUDA")), set(registered("AutocastPrivateUse1"))
    assert cuda - ours <= CUDNN
    assert not {each for each in ours - cuda if each.startswith("aten::")}


def test_banned_operators_are_refused_under_autocast_and_run_without():
    for operator, args, module in AutocastTestLists(torch.device(f"{DEVICE}:0")).banned:
        function = getattr(module, operator)
        inputs = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in args]
        inputs[0] = inputs[0].sigmoid()
        inputs[1] = inputs[1].sigmoid()
        with torch.autocast(DEVICE):
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                function(*inputs)
            with torch.autocast(DEVICE, enabled=False):
                assert function(*inputs).dtype == torch.float32
