"""Products of matrices, attention and decompositions.

The tolerance allows for TF32 and its like: what these checks look for are wrong strides, batches, transposes and
scales.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from backend_conformance import Device, Level, check
from backend_conformance.checks.operators import numbers
from backend_conformance.comparison import FLOATING, Comparison, Function, layouts

PRODUCTS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((5, 6), (6, 4))),
    "mm_transposed": (lambda a, b: a.t() @ b.t(), ((6, 5), (4, 6))),
    "bmm": (torch.bmm, ((3, 5, 6), (3, 6, 4))),
    "bmm_transposed": (lambda a, b: torch.bmm(a.transpose(1, 2), b), ((3, 6, 5), (3, 6, 4))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((4,), (5, 6), (6, 4))),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=3), ((3, 5, 4), (3, 5, 6), (3, 6, 4))),
    "addmv": (lambda c, a, b: torch.addmv(c, a, b, beta=2), ((5,), (5, 6), (6,))),
    "mv": (torch.mv, ((5, 6), (6,))),
    "dot": (torch.dot, ((60,), (60,))),
    "outer": (torch.outer, ((5,), (6,))),
    "matmul_broadcast": (torch.matmul, ((2, 1, 5, 6), (3, 6, 4))),
    "matmul_vector": (torch.matmul, ((2, 5, 6), (6,))),
    "matmul_expanded": (lambda a, b: a.expand(3, 5, 6) @ b, ((1, 5, 6), (3, 6, 4))),
    "linear": (functional.linear, ((2, 5, 6), (4, 6), (4,))),
    "bilinear": (functional.bilinear, ((5, 3), (5, 4), (2, 3, 4))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bki", a, b), ((3, 5, 6), (3, 4, 6))),
    "einsum_trace": (lambda a: torch.einsum("ii->i", a), ((5, 5),)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), ((2, 3, 4), (3, 4, 5))),
    "kron": (torch.kron, ((2, 3), (3, 2))),
    "chain": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), ((2, 9), (9, 3), (3, 5))),
    "cdist": (torch.cdist, ((5, 3), (4, 3))),
    "inner_of_none": (lambda a, b: a @ b, ((3, 0), (0, 4))),
    "conv2d": (lambda x, w: functional.conv2d(x, w, padding=1, stride=2), ((2, 3, 8, 8), (4, 3, 3, 3))),
    "conv2d_channels_last": (
        lambda x, w: functional.conv2d(x.contiguous(memory_format=torch.channels_last), w),
        ((2, 3, 8, 8), (4, 3, 3, 3)),
    ),
    "conv1d": (
        lambda x, w, b: functional.conv1d(x, w, b, dilation=2),
        ((2, 4, 12), (6, 4, 3), (6,)),
    ),
    "conv_transpose2d": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, output_padding=1),
        ((2, 3, 5, 5), (3, 4, 3, 3)),
    ),
}


@check(level=Level.TRAINS, hook="matrix kernels", cases=tuple(PRODUCTS))
def product_follows_the_cpu(device: Device, case: str) -> None:
    """A product gives the CPU's values for each dtype that the CPU has it for, and its gradients.

    Transposed arguments arrive as strides. `beta=0` must ignore the addend, even NaN.
    """
    function, shapes = PRODUCTS[case]
    comparison = Comparison(device, required=FLOATING)
    for dtype in (*FLOATING, torch.int64, torch.complex64):
        arguments = [numbers(dtype, shape, seed=number) for number, shape in enumerate(shapes)]
        if dtype in (torch.float16, torch.bfloat16):
            arguments = [each / 4 for each in arguments]
        double = dtype in (torch.float32, torch.float64, torch.complex64)
        comparison.call(str(dtype), function, arguments, gradients=double, rtol=5e-3, atol=2e-2)
    comparison.conclude()


@check(level=Level.TRAINS, hook="matrix kernels")
def products_accept_all_layouts(device: Device) -> None:
    """Matrix products read arguments of any strides, and write results of any strides.

    BLAS accepts two layouts; all others need a copy.
    """
    comparison = Comparison(device)
    matrices = [*layouts(numbers(torch.float32, (5, 5))), numbers(torch.float32, (1, 5), seed=1).expand(5, 5)]
    matrices += [numbers(torch.float32, (9, 9), seed=2)[::2, 1::2][:4, :4].repeat(2, 2)[:5, :5]]
    matrices += [numbers(torch.float32, (30,), seed=3).as_strided((5, 5), (3, 2))]
    for i, a in enumerate(matrices):
        for j, b in enumerate(matrices):
            comparison.call(f"layouts {i} and {j}", torch.mm, [a, b], rtol=5e-3, atol=1e-2)

    def into(x: torch.Tensor) -> torch.Tensor:
        base = torch.full((10, 12), -1.0, device=x.device)
        torch.mm(x, x, out=base[1:6, 2:12:2])
        torch.addmm(x, x, x, out=base.t()[2:7, 5:])
        return base

    comparison.call("out=", into, [matrices[0]], rtol=5e-3, atol=1e-2)
    comparison.conclude()
    nan = torch.full((3, 3), float("nan"), device=device.this)
    eye = torch.eye(3, device=device.this)
    device.cpu_equal(torch.addmm(nan, eye, eye, beta=0), torch.eye(3))


ATTENTION: dict[str, Function] = {
    "plain": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: functional.scaled_dot_product_attention(q, k[..., :5, :], v[..., :5, :], is_causal=True),
    "mask": lambda q, k, v: functional.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.arange(5, device=q.device)[:, None] >= torch.arange(7, device=q.device)
    ),
    "bias": lambda q, k, v: functional.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.linspace(-1, 1, 35, device=q.device, dtype=q.dtype).view(5, 7)
    ),
    "scale": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=0.1),
    "grouped": lambda q, k, v: functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    "transposed": lambda q, k, v: functional.scaled_dot_product_attention(
        *(each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
    ),
}


@check(
    level=Level.TRAINS,
    hook="_fused_sdp_choice, _scaled_dot_product_fused_attention_overrideable",
    cases=tuple(ATTENTION),
)
def attention_follows_the_cpu(device: Device, case: str) -> None:
    """Scaled dot product attention gives the CPU's values and gradients, whichever kernel the backend chooses.

    Without a kernel, PyTorch composes it of ordinary operators.
    """
    comparison = Comparison(device)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        arguments = [numbers(dtype, (2, 2, length, 8), seed=length + i) / 2 for i, length in enumerate((5, 7, 7))]
        single = dtype in (torch.float32, torch.float64)
        comparison.call(str(dtype), ATTENTION[case], arguments, gradients=single, rtol=5e-3, atol=5e-3)
    comparison.conclude()


def definite(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + 3 * torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)


DECOMPOSITIONS: dict[str, Function] = {
    "cholesky": lambda x: torch.linalg.cholesky(definite(x)),
    "inv": lambda x: torch.linalg.inv(definite(x)),
    "det": lambda x: torch.linalg.det(x),
    "slogdet": lambda x: torch.linalg.slogdet(definite(x)),
    "solve": lambda x: torch.linalg.solve(definite(x), x),
    "qr": lambda x: (lambda q, r: (q @ r, q.mT @ q))(*torch.linalg.qr(x)),
    "svd": lambda x: (lambda u, s, vh: ((u * s[..., None, :]) @ vh, s))(*torch.linalg.svd(x, full_matrices=False)),
    "eigh": lambda x: (lambda w, v: (w, (v * w[..., None, :]) @ v.mT))(*torch.linalg.eigh(definite(x))),
    "lu": lambda x: (lambda p, low, u: p @ low @ u)(*torch.linalg.lu(x)),
    "triangular": lambda x: torch.linalg.solve_triangular(definite(x).tril(), x, upper=False),
    "lstsq": lambda x: torch.linalg.lstsq(torch.cat([x, definite(x)], -2), torch.cat([x, x], -2)).solution,
    "pinv": lambda x: torch.linalg.pinv(x[..., :3, :]),
    "matrix_power": lambda x: torch.linalg.matrix_power(x / 4, 3),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x / 4),
}


@check(level=Level.COMPLETE, hook="aten::linalg_*", cases=tuple(DECOMPOSITIONS))
def decomposition_follows_the_cpu(device: Device, case: str) -> None:
    """A decomposition gives matrices with the CPU's product, single and in batches.

    Factors are unique only up to signs, so their product is compared.
    """
    comparison = Comparison(device)
    for dtype in (torch.float32, torch.float64):
        for shape in ((4, 4), (2, 3, 4, 4)):
            x = numbers(dtype, shape, seed=4)
            comparison.call(f"{dtype}, {shape}", DECOMPOSITIONS[case], [x], rtol=5e-3, atol=5e-3)
    comparison.conclude()
