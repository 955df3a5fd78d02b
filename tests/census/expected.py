"""What the census does not judge, what it finds unequal, and which may wait: by name, with the reason.

The lists are exact. What becomes equal, or no longer waits, has to leave them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from result import Result

# The first tested version of torch in which an entry or operator of the lists is like all others.
SPECIAL_UNTIL = {"native_group_norm": "2.15", "aten.cholesky.default": "2.15"}


def of_this_torch(reasons: dict[str, str]) -> dict[str, str]:
    return {
        name: reason
        for name, reason in reasons.items()
        if name not in SPECIAL_UNTIL or torch.__version__ < SPECIAL_UNTIL[name]
    }


JITERATOR = "compiled by CUDA's runtime compiler"

# Entries, or checks of them, that the census cannot judge.
EXCEPTED = {
    "jiterator_unary": JITERATOR,
    "jiterator_binary": JITERATOR,
    "jiterator_4inputs_with_extra_args": JITERATOR,
    "jiterator_binary_return_by_ref": JITERATOR,
    "jiterator_2inputs_2outputs": JITERATOR,
    "torch.ops.aten._efficient_attention_forward, dtypes": "a GPU's kernel, which nothing calls here",
    "torch.ops.aten._flash_attention_forward, dtypes": "the same; the device has it without dropout",
    **({"scatter, dtypes": "8-bit floats, which CUDA takes since 2.15"} if torch.__version__ >= "2.15" else {}),
    "tensor_split": "its samples hold CPU tensors that may not be moved; see test_unusual_shapes.py",
    "sparse.sampled_addmm, out": "outputs of other strides are made for the check, and a sparse one has none",
    **dict.fromkeys(("tril, out", "triu, out"), "the CPU's kernel writes beyond batched outputs that are transposed"),
}

# Dtypes that only CUDA has: entries of which the results are not compared with those in a wider dtype.
NOT_WIDENED = {
    "nn.functional.rrelu": "draws",
    "nn.functional.conv_transpose2d": "products of complex numbers are three real ones, each rounded",
    "nn.functional.conv_transpose3d": "the same",
    "nansum": "the CPU has it for no complex numbers",
    "nanmean": "the same",
}

# Entries of which the CPU refuses samples, or cannot compute the gradients (then the results count).
COMPLEX32 = "the CPU has no sum or division of complex32, for the gradients"
NOWHERE = "PyTorch's own list is wrong: the CPU does not refuse the call either"
REFUSES_LAYOUT = "the CPU refuses some of its samples as strided, negated or conjugated views"
FAILS_ON_CPU = of_this_torch(
    {
        **dict.fromkeys(
            ("add", "block_diag", "index_fill", "index_put", "masked_fill", "mul", "norm", "sub", "where"), COMPLEX32
        ),
        "repeat_interleave": COMPLEX32,
        **dict.fromkeys(("__rmod__", "__rpow__", "__rsub__", "clamp_max", "clamp_min"), NOWHERE),
        "equal": "its result is no tensor, so that there is nothing for out=",
        "_batch_norm_with_update": REFUSES_LAYOUT,
        "_native_batch_norm_legit": REFUSES_LAYOUT,
        "as_strided.partial_views": REFUSES_LAYOUT,
        "as_strided_scatter": REFUSES_LAYOUT,
        "native_group_norm": REFUSES_LAYOUT,
        "view_as_complex": REFUSES_LAYOUT,
        "view_as_real": REFUSES_LAYOUT,
    }
)


class Unequal(NamedTuple):
    """In which checks, and with which dtypes, entries differ from the CPU."""

    names: str
    checks: dict[str, str]
    reason: str

    def cases(self) -> set[tuple[str, str, str]]:
        """Name, check and dtype of each."""
        checks = [(check, dtype) for check, dtypes in self.checks.items() for dtype in dtypes.split()]
        return {(name, *each) for name in self.names.split() for each in checks}


BY_DEVICE = "PyTorch chooses by the device how to accumulate: in float32 on the CPU, in the input's dtype here"
CONJ_BIT = "the CPU returns a view with the conj bit, the device the same numbers without"
ELEMENTS = "found in the elements, so an error of the stream (docs/architecture.md, Errors)"
CUDA_LIMIT = "a limit of CUDA's kernel, which the CPU does not have"
CPU_SENTENCE = "the CPU and CUDA have different sentences; the device has the CPU's"
OUT_STRIDES = "the CPU's kernel, not its meta function, gives outputs without elements other strides"
REFUSED = "an output that overlaps itself is refused; the CPU writes what it happens to"
IGNORED_STRIDES = "the CPU's kernel ignores the strides of an output; the device respects them, as CUDA does"
COPIED_OVER = "PyTorch copies into an output on any device, on CUDA too"

WIDENED = "computed in float32 and rounded once here, in the dtype on the CPU"

UNEQUAL = [
    Unequal(
        "addbmm nn.functional.binary_cross_entropy nn.functional.conv1d nn.functional.conv2d "
        "nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d "
        "nn.functional.conv_transpose3d nn.functional.scaled_dot_product_attention",
        {"values": "float16"},
        WIDENED,
    ),
    Unequal(
        "grid_sampler_2d grid_sampler_3d matrix_exp nn.functional.adaptive_avg_pool3d nn.functional.grid_sample",
        {"values": "bfloat16 float16"},
        WIDENED,
    ),
    Unequal(
        "nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none",
        {"values": "bfloat16 float16"},
        BY_DEVICE,
    ),
    Unequal(
        "linalg.lu_solve",
        {
            "conj": "complex64",
            "conj_neg": "complex64",
            "noncontiguous": "complex64",
            "values": "complex128 complex64",
        },
        CONJ_BIT,
    ),
    Unequal("gather masked_fill multinomial scatter scatter_add", {"errors": "float32"}, ELEMENTS),
    Unequal("__rmod__ __rpow__ __rsub__ clamp_max clamp_min", {"errors": "float32"}, NOWHERE),
    Unequal("median", {"errors": "float32"}, CUDA_LIMIT),
    Unequal("narrow_copy", {"errors": "float32"}, CPU_SENTENCE),
    Unequal("triangular_solve", {"out": "float32"}, OUT_STRIDES),
    Unequal(
        "all amax amin any argmax argmin hash_tensor histc linalg.matrix_rank linalg.matrix_rank.hermitian matmul "
        "multinomial mv norm norm.inf std var",
        {"out": "float32"},
        REFUSED,
    ),
    Unequal("lu", {"out": "float32"}, COPIED_OVER),
    Unequal("narrow_copy nn.functional.avg_pool3d nn.functional.gelu", {"out": "float32"}, IGNORED_STRIDES),
]

UNEQUAL_CASES = {case for each in UNEQUAL for case in each.cases()}

# Operators that may make the host wait. The yardstick: they do on CUDA too.
SHAPE = "the shape of the result depends on elements"
NUMBER = "the host asks for a number"
ANSWER = "the answer is for the host"
CHECKED = "it raises at the call if a matrix is singular, indefinite or not converged"
LENGTHS = "lengths are read, and checked, on the host"
FORMULA = "PyTorch's formula for the gradient asks for elements"
WAITING = of_this_torch(
    {
        **dict.fromkeys(
            (
                "aten.nonzero.default",
                "aten.masked_select.default",
                "aten.masked_scatter_backward.default",
                "aten._unique.default",
                "aten._unique2.default",
                "aten.unique_consecutive.default",
                "aten.bincount.default",
                "aten.index.Tensor",
                "aten.repeat_interleave.Tensor",
            ),
            SHAPE,
        ),
        **dict.fromkeys(("aten.allclose.default", "aten.equal.default"), ANSWER),
        "aten._local_scalar_dense.default": NUMBER,
        **{
            f"aten.{name}.{overload}": NUMBER
            for name in ("linspace", "logspace")
            for overload in ("Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor")
        },
        **dict.fromkeys(
            (
                "aten._linalg_check_errors.default",
                "aten._linalg_eigh.default",
                "aten._linalg_eigvals.default",
                "aten._linalg_svd.default",
                "aten.cholesky.default",
                "aten.cholesky_inverse.default",
                "aten.linalg_eig.default",
                "aten.linalg_lstsq.default",
                "aten.linalg_pinv.atol_rtol_tensor",
            ),
            CHECKED,
        ),
        "aten._ctc_loss.default": LENGTHS,
        "aten._ctc_loss.Tensor": LENGTHS,
        "aten.segment_reduce.default": LENGTHS,
        **{
            f"gradient of {name}": FORMULA
            for name in (
                "prod",
                "masked.prod",
                "cumprod",
                "masked.cumprod",
                "linalg.vander",
                "masked_fill",
                "linalg.eigh",
            )
        },
        "torch.tensor": "the elements of a list are copied from pageable memory",
        # These do not wait on CUDA.
        "aten._histogramdd_bin_edges.default": "CUDA does not have it; it returns a list",
        **{
            f"gradient of {name}": "PyTorch's formula has a branch for CUDA only that does not ask for elements"
            for name in ("max.reduction_no_dim", "min.reduction_no_dim", "median", "nanmedian")
        },
    }
)

# Entries of sparse tensors: with these, the host does what the CPU does.
WAITING_ENTRIES = {"to_sparse", "sparse.mm.reduce", "sparse.sampled_addmm"}


def unexpected(results: list[Result]) -> list[str]:
    """What is not as the lists say: crashes, differences, failures on the CPU, waits."""
    found = []
    for result in results:
        where = f"{result.name}, {result.check}, {result.dtype}"
        listed = (result.name, result.check, result.dtype) in UNEQUAL_CASES
        if result.status == "crashed" or (result.status == "unequal" and not listed):
            found.append(f"{where}: {result.status}, {result.details[:1]}")
        refused = result.cpu_failures and result.check != "shapes"  # there, the device has to refuse likewise
        if (result.status == "cpu" or refused) and result.name not in FAILS_ON_CPU:
            found.append(f"{where}: fails on the CPU, {result.details[:1]}")
        if result.check == "values" and result.name not in WAITING_ENTRIES:
            waiting = [operator for operator in result.waiting if operator not in WAITING]
            found += [f"{where}: {operator} makes the host wait" for operator in waiting]
    return found


def in_vain(results: list[Result]) -> list[str]:
    """What the lists hold and a census of everything did not find."""
    seen = {result.name for result in results if result.cpu_failures or result.status == "cpu"}
    waited = {operator for result in results if result.check == "values" for operator in result.waiting}
    unequal = {(result.name, result.check, result.dtype) for result in results if result.status == "unequal"}
    return [
        *(f"{name}: does not fail on the CPU" for name in FAILS_ON_CPU if name not in seen),
        *(f"{operator}: does not make the host wait" for operator in WAITING if operator not in waited),
        *(f"{', '.join(case)}: is not unequal" for case in sorted(UNEQUAL_CASES - unequal)),
    ]
