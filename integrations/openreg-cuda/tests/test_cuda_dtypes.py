"""Dtypes that an operator has on CUDA and not on the CPU: they are computed in a wider one, and rounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 4
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.complex32: 4e-3}
# What has no meaning without a GPU: programs in CUDA C++, and operators of libraries for it.
NEEDS_A_GPU = ("jiterator_", "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward")
NOT_COMPARED = {
    "nn.functional.rrelu": "draws",
    "nn.functional.conv_transpose2d": "products of complex numbers are three real ones, each rounded",
    "nn.functional.conv_transpose3d": "the same",
    "nansum": "the CPU has it for no complex numbers",
    "nanmean": "the same",
}


def pairs() -> list[tuple[Any, torch.dtype]]:
    """Operators, each with a dtype that only CUDA has."""
    return [
        (op, dtype)
        for op in op_db
        for dtype in sorted(op.supported_dtypes("cuda"), key=str)
        if not op.supports_dtype(dtype, "cpu") and not op.name.startswith(NEEDS_A_GPU)
    ]


def widened(values: Any, dtype: torch.dtype) -> Any:
    def widen(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return WIDE[dtype] if value is dtype else value
        moved = value.detach().cpu()
        wide = moved.to(WIDE[dtype]) if moved.dtype == dtype else moved
        return wide.requires_grad_() if value.requires_grad else wide

    return tree_map(widen, values)


def results(op: Any, values: Any) -> list[torch.Tensor]:
    """The outputs, and the gradients of the arguments."""
    out = op(values[0], *values[1], **values[2])
    outputs = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
    leaves = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.requires_grad]
    roots = [each for each in outputs if each.requires_grad]
    gradients = (
        torch.autograd.grad(roots, leaves, list(map(torch.ones_like, roots)), allow_unused=True) if roots else ()
    )
    return [each.detach() for each in (*outputs, *gradients) if each is not None]


@pytest.mark.filterwarnings("ignore")
def test_each_operator_has_the_dtypes_of_cuda() -> None:
    wrong, count, compared = [], 0, 0
    for op, dtype in pairs():
        differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
        for _, sample in zip(
            range(SAMPLES), op.sample_inputs("cuda", dtype, requires_grad=differentiable), strict=False
        ):
            values = (sample.input, sample.args, sample.kwargs)
            count += 1
            try:
                found = results(op, values)
                if dtype in WIDE and op.name not in NOT_COMPARED:
                    expected = results(op, widened(values, dtype))
                    for a, b in zip(found, expected, strict=True):
                        narrow = b.to(dtype) if a.dtype == dtype else b
                        wide = WIDE.get(a.dtype, a.dtype)
                        limits = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
                        computed, narrow = a.cpu().to(wide), narrow.to(wide)
                        # Steps of a gradient overflow in half precision, and not in single.
                        fits = computed.isfinite() & narrow.isfinite()
                        assert_close(computed[fits], narrow[fits], **limits)
                        compared += int(fits.sum())
            except Exception as error:
                wrong.append(f"{op.formatted_name} {dtype}: {type(error).__name__}: {str(error)[:200]}")
                break
    assert count > 50 and compared > 1000
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_a_histogram_of_integers_counts_by_integer_division(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 5, 9, 10, 29, 57, 99, 100], dtype=dtype, device="cuda")
    assert x.histc(100, 0, 100).nonzero().flatten().tolist() == [0, 1, 5, 9, 10, 29, 57, 99]
    counts = x.histc(4)
    assert counts.tolist() == [5 + 0, 1, 1, 2] and counts.dtype == dtype
    assert x.histc(2, 1, 9).tolist() == [1, 2]
    assert torch.full((3,), 4, dtype=dtype, device="cuda").histc(2).tolist() == [0, 3]
    out = torch.empty(0, dtype=dtype, device="cuda")
    torch.histc(x, 2, 0, 100, out=out)
    assert out.tolist() == [6, 3]
    with pytest.raises(RuntimeError, match="bins must be"):
        x.histc(0)


def test_truth_has_an_absolute_value_and_a_trace() -> None:
    x = torch.tensor([[True, False], [False, True]], device="cuda")
    assert torch.equal(x.abs(), x)
    assert x.trace().item() == 2 and x.trace().dtype == torch.int64


def test_a_sum_of_complex_numbers_leaves_out_what_is_none() -> None:
    x = torch.tensor([[1 + 1j, complex("nan")], [2, 3j]], device="cuda", requires_grad=True)
    x.nansum().abs().backward()
    assert x.nansum().item() == 3 + 4j
    assert x.nansum(0, keepdim=True).tolist() == [[3 + 1j, 3j]]
    assert x.grad[0, 1] == 0 and x.grad[0, 0] != 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_are_reduced_in_half_precision(dtype: torch.dtype) -> None:
    x = torch.rand(1, 3, 16, 16)
    for mode in ("bilinear", "bicubic"):
        expected = F.interpolate(x, (5, 7), mode=mode, antialias=True)
        found = F.interpolate(x.to("cuda", dtype), (5, 7), mode=mode, antialias=True)
        assert found.dtype == dtype
        assert_close(found.float().cpu(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x / (1 + 2j),
        lambda x: (1 + 2j) / x,
        lambda x: x ** (1 + 2j),
        lambda x: (1 + 2j) ** x,
        lambda x: x / (x * 1j + 1),
        lambda x: (x * 1j + 1) / x,
        lambda x: x ** (x * 1j),
        lambda x: torch.lerp(x * 1j, x * 1j + 1, 0.25),
    ],
    ids=["x / c", "c / x", "x ** c", "c ** x", "x / z", "z / x", "x ** z", "lerp"],
)
def test_real_numbers_beside_complex_ones_of_half_precision(work: Any) -> None:
    x = torch.tensor([0.5, 1, 2], dtype=torch.float16)
    limit = TOLERANCES[torch.complex32]
    for _ in range(3):
        got = work(x.cuda())
        assert got.dtype == torch.complex32
        assert_close(got.cpu().to(torch.complex64), work(x.float()), rtol=limit, atol=limit)


def test_half_precision_is_refused_where_cuda_refuses_it() -> None:
    with pytest.raises(RuntimeError, match="not implemented for"):
        torch.linalg.det(torch.ones(2, 2, device="cuda", dtype=torch.float16))


# What CUDA has no kernel for, and is computed here all the same.
NOT_REFUSED = {
    "angle": "computed in a wider dtype, as complex numbers are",
    "native_dropout_backward": "a product",
    "norm": "of complex numbers of half precision",
    "scatter_reduce": "of bool",
    "torch._scaled_mm": "8-bit floats of other processors",
    "torch._scaled_mm_v2": "the same",
}


def refused(op: Any, dtype: torch.dtype) -> bool:
    for sample in op.sample_inputs("cuda", dtype):
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except RuntimeError:
            return True
    return False


@pytest.mark.filterwarnings("ignore")
def test_what_cuda_has_no_kernel_for_is_refused() -> None:
    for_the_cpu = {
        (op.name, dtype): refused(op, dtype)
        for op in op_db
        for dtype in sorted(op.supported_dtypes("cpu") - op.supported_dtypes("cuda"), key=str)
    }
    computed = {name for (name, _), is_refused in for_the_cpu.items() if not is_refused}
    assert len(for_the_cpu) > 100 and computed <= set(NOT_REFUSED), computed


def test_products_of_integers_are_refused_at_each_call() -> None:
    x = torch.ones(3, 3, dtype=torch.int64, device="cuda")
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Long'"):
            x @ x
    assert (x * x).sum().item() == 9
    assert (x.cpu() @ x.cpu())[0, 0] == 3


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.fft.fft(x),
        lambda x: torch.fft.fft(x, n=12),
        lambda x: torch.fft.ifft(x, dim=0, n=6),
        lambda x: torch.fft.irfft(x),
        lambda x: torch.fft.hfft(x[:, :8]),
        lambda x: torch.fft.fft2(x, s=(16, 12)),
        lambda x: torch.fft.fftn(x),
        lambda x: torch.fft.irfftn(x[:, :8], dim=(1, 0)),
        lambda x: torch.fft.fft(x, out=torch.empty(0, dtype=torch.complex32, device="cuda")),
    ],
)
def test_half_precision_has_transforms_of_powers_of_two_only(call: Any) -> None:
    x = torch.ones(13, 13, dtype=torch.complex32, device="cuda")
    with pytest.raises(RuntimeError, match="cuFFT only supports dimensions whose sizes are powers of two"):
        call(x)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_transforms_of_powers_of_two() -> None:
    x = torch.ones(16, 9, dtype=torch.complex32, device="cuda")
    assert torch.fft.irfft(x).shape == (16, 16)
    assert torch.fft.irfftn(x, dim=(0, 1)).shape == (16, 16)
    assert torch.fft.fft(x, n=8).shape == (16, 8)
    assert torch.fft.fft2(x, s=(-1, 4)).shape == (16, 4)
    signal = torch.ones(64, dtype=torch.float16, device="cuda")
    assert torch.stft(signal, 16, return_complex=True).dtype == torch.complex32
    with pytest.raises(RuntimeError, match="powers of two"):
        torch.stft(signal, 12, return_complex=True)
