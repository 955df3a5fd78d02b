"""Makes PyTorch's Python code decide for this device as for the CPU, because it computes as the CPU does.

PyTorch tests ``device.type == "cpu"`` to decide what an operator returns (whether batch normalisation saves its
statistics in the dtype of its input) and what is fast or exact in C++ (whether a small matrix product becomes a loop,
how a variance is computed, when a value is stored instead of recomputed). In the functions below the constant
``"cpu"`` is replaced by one that also equals ``"openreg"``. Functions that test where memory is are not among them.
scripts/device_checks.py lists all functions of PyTorch's compiler that test a device's type, each with its decision.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from ..._slot import KEY, NAME

OF_FORMULAS = {
    "torch._decomp.decompositions": ("native_batch_norm_helper",),
    "torch._prims_common": ("get_acc_type",),
    "torch._refs": ("native_group_norm", "native_layer_norm"),
}
OF_INDUCTOR = {
    "torch._inductor.codecache": (
        "FxGraphHashDetails._contains_cpu_tensor",
        "FxGraphHashDetails._may_generate_cpu_cpp_code",
    ),
    "torch._inductor.decomposition": ("bmm", "addmm", "mm"),
    "torch._inductor.fx_passes.reduced_atomic_contention": ("_evaluate_candidate",),
    "torch._inductor.ir": ("is_cpu",),
    "torch._inductor.kernel.bmm": ("tuned_bmm",),
    "torch._inductor.kernel.conv": ("convolution",),
    "torch._inductor.kernel.flex.flex_attention": ("flex_attention", "flex_attention_backward"),
    "torch._inductor.kernel.mm_common": ("_use_small_mm_pointwise",),
    "torch._inductor.lowering": (
        "_make_reduction_inner",
        "_pad_as_cat",
        "_pool_argmax_inner_fn",
        "cat",
        "div_prim",
        "promote_constants",
        "quantized_decomposed_quantize_per_tensor_tensor",
        "use_two_step_variance",
    ),
    "torch._inductor.scheduler": (
        "BaseSchedulerNode.is_cpu",
        "ForeachKernelSchedulerNode._default_group_nodes_for_combo_kernels",
        "ForeachKernelSchedulerNode._filter_nodes_for_combo_kernel_grouping",
        "Scheduler.speedup_by_fusion",
    ),
    "torch._inductor.utils": ("get_current_backend", "use_scatter_fallback"),
}


class _Cpu(str):
    """``"cpu"`` that also equals ``"openreg"``."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == NAME or str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other


def extend(functions: dict[str, tuple[str, ...]]) -> None:
    """Makes functions, given by module and name, treat the device like the CPU. Not every version has all of them."""
    for module_name, names in functions.items():
        module = importlib.import_module(module_name)
        for name in names:
            function: Any = module
            for part in name.split("."):
                function = getattr(function, part, None)
            if function is None:
                continue
            # Replaces the code, not the function, which tables already refer to.
            function = inspect.unwrap(getattr(function, "__func__", function))
            assert isinstance(function, FunctionType), name
            function.__code__ = _extended(function.__code__)


def _extended(value: Any) -> Any:
    if isinstance(value, str):
        return _Cpu(value) if value == "cpu" else value
    if isinstance(value, tuple):
        return tuple(_extended(each) for each in value)
    if isinstance(value, CodeType):
        return value.replace(co_consts=tuple(_extended(each) for each in value.co_consts))
    return value


def extend_formulas(_: ModuleType) -> None:
    """Makes the formulas of ``torch._refs`` treat the device like the CPU."""
    extend(OF_FORMULAS)
    # The device's kernel, for half precision, would hide the formula, which leaves out a check of values.
    istft = torch.ops.aten.istft.default
    formula = istft.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]
    for key in (f"Autograd{KEY}", KEY):
        istft.py_impl(getattr(torch._C.DispatchKey, key))(formula)


def extend_meta_functions(module: ModuleType) -> None:
    """Makes ``torch._meta_registrations``, which computes the shapes of results, treat the device like the CPU."""
    original = module.device_hint

    @functools.wraps(original)
    def device_hint(tensor: Any) -> str:
        hint: str = original(tensor)
        return "cpu" if hint == NAME else hint

    module.device_hint = device_hint  # type: ignore[attr-defined]


def prefer_the_device_to_the_cpu(module: ModuleType) -> None:
    """Makes torch._inductor.lowering place an elementwise operator on the device if an operand is a number on the CPU.

    Inductor takes the first operand for which `is_gpu` is true, or else the first operand. Since 2.14 `index_put_impl_`
    calls `is_gpu` too, to decide about the atomic additions of GPUs: there PyTorch's own function remains.
    """
    original = module.is_gpu
    module.is_gpu = lambda device: device == NAME or original(device)  # type: ignore[attr-defined]
    module.is_gpu_of_pytorch = original  # type: ignore[attr-defined]
    code = module.index_put_impl_.__code__
    names = tuple("is_gpu_of_pytorch" if name == "is_gpu" else name for name in code.co_names)
    module.index_put_impl_.__code__ = code.replace(co_names=names)
