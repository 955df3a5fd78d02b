"""Operators compute what the CPU does: PyTorch's database of operators, forward and backward, and under autocast."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = 3
# Why a call may fail where the CPU's does not.
REFUSED = {
    "tensor_split": "the sections must be on the CPU, as with a GPU",
    "as_strided_partial_views": "reads storage beyond its argument, which the copy of the argument does not have",
}
# Draw without that.
DRAW = ("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward")
REFUSED_UNDER_AUTOCAST = {
    **REFUSED,
    "nn_functional_binary_cross_entropy": "unsafe to autocast, says PyTorch",
    "svd_lowrank": "CUDA has no QR decomposition in half precision",
    "pca_lowrank": "the same",
    "linalg_pinv_singular": "CUDA has no pseudo-inverse in half precision",
}


def is_determined(op: Any) -> bool:
    """Whether results depend on the arguments alone: not on uninitialised memory, or random numbers, which are CUDA's.

    The database sets the seed of operators that draw.
    """
    code = getattr(op.op, "__code__", None)
    draws = code is not None and "wrapper_set_seed" in code.co_names
    return not draws and "empty" not in op.name and op.name not in DRAW


def on(device: str) -> Any:
    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(device).requires_grad_(value.requires_grad)
        return torch.device(device) if isinstance(value, torch.device) else device if value == "cpu" else value

    return move


def results(op: Any, sample: Any, device: str, context: Any) -> list[torch.Tensor]:
    """The outputs and the gradients of the arguments, on the CPU."""
    values = tree_map(on(device), (sample.input, sample.args, sample.kwargs))
    with context:
        out = op(values[0], *values[1], **values[2])
    outputs = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
    losses = [each.abs().sum() if each.is_complex() else each.float().sum() for each in outputs if each.requires_grad]
    leaves = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.requires_grad]
    gradients = torch.autograd.grad(losses, leaves, allow_unused=True) if losses and leaves else ()
    return [each.detach().cpu() for each in (*outputs, *gradients) if each is not None]


def sweep(dtype: torch.dtype, compare: bool, refused: dict[str, str], autocast: bool) -> list[str]:
    """The names of the operators that fail where the CPU's do not, or whose results differ."""
    wrong = []
    for op in op_db:
        if not op.supports_dtype(dtype, "cpu") or not op.supports_dtype(dtype, "cuda"):
            continue
        differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for sample, _ in zip(
            op.sample_inputs("cpu", dtype, requires_grad=differentiable), range(SAMPLES), strict=False
        ):
            try:
                expected = results(op, sample, "cpu", contextlib.nullcontext())
            except Exception:
                continue
            context = torch.autocast("cuda") if autocast else contextlib.nullcontext()
            try:
                found = results(op, sample, "cuda", context)
            except Exception as error:
                if op.formatted_name not in refused:
                    wrong.append(f"{op.formatted_name}: {type(error).__name__}: {str(error)[:200]}")
                break
            try:
                if compare:
                    assert_close(found, expected, equal_nan=True)
            except AssertionError as error:
                if is_determined(op) and op.formatted_name not in refused:
                    wrong.append(f"{op.formatted_name}: {str(error)[:200]}")
                break
    return wrong


def test_results_and_gradients_are_those_of_the_cpu() -> None:
    assert not (wrong := sweep(torch.float32, True, REFUSED, False)), "\n".join(wrong)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.int64])
def test_other_dtypes_compute(dtype: torch.dtype) -> None:
    assert not (wrong := sweep(dtype, False, REFUSED, False)), "\n".join(wrong)


def test_autocast_runs_each_operator() -> None:
    assert not (wrong := sweep(torch.float32, False, REFUSED_UNDER_AUTOCAST, True)), "\n".join(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", [None, SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION])
def test_a_mask_of_bools_is_one_of_numbers(
    dtype: torch.dtype, dropout: float, grouped: bool, kind: SDPBackend | None
) -> None:
    """With and without what the CPU's fused kernel takes. CUDA's efficient one takes neither float64 nor groups."""
    heads = 2 if grouped else 4
    query = torch.randn(2, 4, 5, 8, dtype=dtype, device="cuda")
    key, value = torch.randn(2, 2, heads, 6, 8, dtype=dtype, device="cuda")
    mask = torch.rand(2, 4, 5, 6, device="cuda") > 0.4
    numbers = torch.zeros(mask.shape, dtype=dtype, device="cuda").masked_fill(~mask, -torch.inf)
    results = []
    for each in (mask, numbers):
        torch.manual_seed(1)
        with sdpa_kernel(kind) if kind else contextlib.nullcontext():
            results.append(scaled_dot_product_attention(query, key, value, each, dropout, enable_gqa=grouped))
    assert_close(results[0], results[1])
    if not dropout:
        on_cpu = scaled_dot_product_attention(query.cpu(), key.cpu(), value.cpu(), mask.cpu(), enable_gqa=grouped)
        assert_close(results[0].cpu(), on_cpu)


def test_products_of_small_integers_have_the_sizes_of_cublas() -> None:
    def product(m: int, k: int, n: int, *, rows: int | None = None) -> torch.Tensor:
        a, b = torch.ones(m, k, dtype=torch.int8), torch.ones(rows or k, n, dtype=torch.int8)
        return torch._int_mm(a.cuda(), b.cuda())

    assert torch.equal(product(17, 8, 16).cpu(), torch.full((17, 16), 8, dtype=torch.int32))
    for sizes, message in (
        ((16, 8, 16), r"self.size\(0\) needs to be greater than 16, but got 16"),
        ((17, 7, 16), r"self.size\(1\) needs to be greater than 0 and a multiple of 8, but got 7"),
        ((17, 8, 15), r"mat2.size\(1\) needs to be greater than 0 and a multiple of 8, but got 15"),
    ):
        with pytest.raises(RuntimeError, match=message):
            product(*sizes)
    with pytest.raises(RuntimeError, match=r"self.size\(1\) needs to match mat2.size\(0\) but got 8 and 16"):
        product(17, 8, 16, rows=16)
