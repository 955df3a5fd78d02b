"""Dtypes that CUDA has and the CPU has not, by PyTorch's list (`dtypesIfCUDA`): computed in a wider one and rounded."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_map

from expected import NOT_WIDENED
from outcome import DEVICE, clear_errors, with_gradients
from result import Result, failure
from samples import Call, call_of, tensors

WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.complex32: 4e-3}


def only_on_cuda(op: Any) -> list[torch.dtype]:
    """Those that the CPU has not at all, or has no gradients in."""
    lists = op.supported_dtypes, op.supported_backward_dtypes
    return sorted(set().union(*(set(each("cuda")) - set(each("cpu")) for each in lists)), key=str)


def widened(call: Call, dtype: torch.dtype) -> Call:
    """The same call of the CPU, in the wider dtype."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return WIDE[dtype] if leaf is dtype else leaf
        wide = leaf.detach().to("cpu", WIDE[dtype] if leaf.dtype == dtype else leaf.dtype)
        return wide.requires_grad_(leaf.requires_grad)

    return Call(*tree_map(widen, tuple(call)))


def compare_rounded(got: torch.Tensor, wide: torch.Tensor, dtype: torch.dtype) -> None:
    got, wide = (each.to_dense() if each.layout != torch.strided else each for each in (got, wide))
    wider = WIDE.get(got.dtype, got.dtype)
    expected, computed = wide.to(got.dtype).to(wider), got.cpu().to(wider)
    fits = (
        computed.isfinite() & expected.isfinite()
    )  # steps of a gradient overflow in half precision, and not in single
    assert_close(computed[fits], expected[fits], rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def check_dtypes(op: Any, result: Result, samples: int) -> None:
    """The device computes the dtype, with gradients if CUDA has any, and what the CPU does in a wider one."""
    dtype = getattr(torch, result.dtype)
    result.backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
    for sample in itertools.islice(op.sample_inputs(DEVICE, dtype, requires_grad=result.backward), samples):
        call = call_of(sample)
        try:
            found = tensors(with_gradients(op, call))
            if dtype in WIDE and result.name not in NOT_WIDENED:
                for got, wide in zip(found, tensors(with_gradients(op, widened(call, dtype))), strict=True):
                    compare_rounded(got.detach(), wide.detach(), dtype)
            result.samples += 1
        except Exception as error:
            result.unequal(f"sample {result.samples}: {failure(error)}")
            clear_errors()
            break
