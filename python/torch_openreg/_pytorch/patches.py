"""Patches for behaviour that a backend can only change in PyTorch's Python code. Each states its reason."""

from __future__ import annotations

import enum
import functools
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._prims import rng_prims
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils._pytree import tree_leaves

from .. import _C, openreg
from .._slot import KEY, NAME, UNNEEDED_PATCHES
from . import multiprocessing
from .post_import import when_imported

# Modules of PyTorch, and the function that is called with each of them after its import.
_WHEN_IMPORTED = (
    ("torch", "patches:patch_dlpack_device"),
    ("torch._tensor_str", "patches:print_unknown_values"),
    ("torch.distributed.distributed_c10d", "distributed:register"),
    ("torch.cuda._pin_memory_utils", "distributed:pin_for_the_device"),
    ("torch.distributed.checkpoint._state_dict_stager", "distributed:pin_while_staging"),
    ("torch.testing._internal.distributed.fake_pg", "distributed:register_fake"),
    ("torch.testing._internal.distributed.multi_threaded_pg", "distributed:order_threads"),
    ("torch.distributed.pipelining.stage", "fake_world:adapt_stages"),
    ("torch.nn.attention.flex_attention", "attention:accept_flex_attention"),
    ("torch._higher_order_ops.flex_attention", "attention:register_flex_autocast"),
    ("torch.distributed.tensor", "attention:register_sharding"),
    ("torch.distributed.tensor.experimental._context_parallel._attention", "attention:register_ring"),
    ("torch.nn.parallel.comm", "data_parallel:register"),
    ("torch.nn.parallel.parallel_apply", "data_parallel:register_threads"),
    ("torch.nn.parallel.distributed", "ddp:accept_bfloat16_hooks"),
    ("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook", "ddp:order_callbacks"),
    ("torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks", "ddp:order_callbacks"),
    ("torch.distributed.nn.functional", "ddp:reduce_gradients_of_gathered"),
    ("torch.distributed._symmetric_memory", "ddp:refuse_workspaces"),
    ("torch._dynamo.device_interface", "compile.dynamo_interface:register_interface"),
    ("torch._dynamo.variables.ctx_manager", "compile.dynamo_interface:register_device_context"),
    ("torch._dynamo.eval_frame", "compile.graph_order:run_methods_of_streams"),
    ("torch._dynamo.output_graph", "compile.graph_order:break_graphs_after_mutations"),
    ("torch._functorch._aot_autograd.graph_capture", "compile.graph_order:keep_order_of_joint_graphs"),
    ("torch._functorch._aot_autograd.graph_capture", "compile.graph_order:leave_waits_to_programs"),
    ("torch._functorch._aot_autograd.streams", "compile.graph_streams:find_the_current_stream"),
    ("torch._functorch._aot_autograd.runtime_wrappers", "compile.graph_streams:keep_streams_for_backward"),
    ("torch._functorch.partitioners", "compile.graph_streams:draw_on_the_same_stream"),
    ("torch._inductor.pattern_matcher", "compile.graph_order:keep_order_of_patterns"),
    ("torch._inductor.fx_passes.replace_random", "compile.graph_streams:draw_seeds_on_each_stream"),
    ("torch._inductor.codecache", "compile.graph_streams:add_to_keys_of_programs"),
    ("torch._subclasses.fake_impls", "patches:patch_fake_convolutions"),
    ("torch._meta_registrations", "compile.cpu_equivalence:extend_meta_functions"),
    ("torch._refs", "compile.cpu_equivalence:extend_formulas"),
    ("torch._inductor.analysis.device_info", "compile.costs:add_to_datasheets"),
    ("torch._inductor.utils", "compile.costs:use_datasheet"),
    ("torch._inductor.runtime.benchmarking", "compile.costs:measure_on_the_device"),
    ("torch._inductor.cpp_builder", "compile.build_files:write_atomically"),
    ("torch._inductor.cpp_builder", "compile.build_files:find_no_compiler"),
    ("torch._inductor.cpu_vec_isa", "compile.build_files:try_no_instructions"),
    ("torch._inductor.compile_fx", "compile.inductor.registration:register"),
    ("torch.testing._internal.optests.autograd_registration", "patches:patch_opcheck"),
    ("triton.runtime.jit", "triton_launches:need_no_driver"),
    ("triton.runtime.jit", "triton_launches:launch_nothing"),
)


def apply() -> None:
    """Applies all patches. Called once, when the device is loaded."""
    _patch_byteswap()
    _accept_default_tensor_type()
    _patch_random_replay()
    _refuse_to_capture_optimizers()
    multiprocessing.share_memory_between_processes()
    for module, patch in _WHEN_IMPORTED:
        if patch not in UNNEEDED_PATCHES:
            when_imported(module, patch)


def patch_dlpack_device(_: ModuleType) -> None:
    # PyTorch compares the device type with the literal "privateuse1", which no renamed backend has, so
    # torch.from_dlpack(tensor) raises. The C++ code does map the device, to kDLExtDev.
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type != NAME:
            return original(self)
        from torch.utils.dlpack import DLDeviceType

        return (DLDeviceType.kDLExtDev, self.device.index)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def print_unknown_values(module: ModuleType) -> None:
    # It selects elements by a mask to choose their format: without computing, an unknown number. The host reads zeros.
    original = module._Formatter.__init__

    @functools.wraps(original)
    def __init__(self: Any, tensor: torch.Tensor) -> None:
        original(self, tensor if tensor.device.type != NAME or _C.computes() else tensor.cpu())

    module._Formatter.__init__ = __init__


def _refuse_to_capture_optimizers() -> None:
    # Before version 2.15 PyTorch checks for a capture on CUDA and XPU only. Unless `capturable` is set, steps are
    # counted on the host, so each replay would use the step number of the capture.
    original = torch.optim.Optimizer._accelerator_graph_capture_health_check

    @functools.wraps(original)
    def check(self: torch.optim.Optimizer) -> None:
        if not torch.compiler.is_compiling() and openreg.is_current_stream_capturing():
            kind = type(self).__name__
            if any("capturable" not in group for group in self.param_groups):  # PyTorch's check raises KeyError
                raise RuntimeError(
                    f"openreg: step() of {kind} cannot be captured: it counts its steps on the host, and has no option "
                    "capturable; call it outside the graph"
                )
            if not all(group["capturable"] for group in self.param_groups):
                raise RuntimeError(
                    f"openreg: step() of {kind} cannot be captured without capturable=True (got False); pass it to the "
                    "optimizer"
                )
        original(self)

    torch.optim.Optimizer._accelerator_graph_capture_health_check = check  # type: ignore[method-assign]


def _patch_byteswap() -> None:
    # It swaps through the raw pointer on the host: with device memory the process would crash.
    original = torch.UntypedStorage.byteswap

    @functools.wraps(original)
    def byteswap(self: torch.UntypedStorage, dtype: torch.dtype) -> None:
        if self.device.type == NAME:
            raise RuntimeError(
                f"openreg: byteswap needs a storage in host memory (got {self.device}, expected cpu); use .cpu() first"
            )
        original(self, dtype)  # type: ignore[no-untyped-call]

    torch.UntypedStorage.byteswap = byteswap  # type: ignore[method-assign, assignment]


def _accept_default_tensor_type() -> None:
    # PyTorch accepts the types of its own devices only: "only floating-point types are supported as the default type".
    # The function is deprecated, but old programs begin with it; PyTorch names the two functions that replace it.
    original = torch.set_default_tensor_type

    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        named = isinstance(t, str) and t.startswith(f"torch.{NAME}.")
        kind = openreg.legacy.TYPES.get(t.removeprefix(f"torch.{NAME}.")) if named else t
        if isinstance(kind, openreg.legacy.TensorType):
            original(getattr(torch, kind.__name__))  # which has the warning, and refuses integers
            torch.set_default_device(NAME)
            return
        original(t)
        if torch.get_default_device().type == NAME:
            torch.set_default_device(None)

    torch.set_default_tensor_type = set_default_tensor_type


def _patch_random_replay() -> None:
    # Compiled backward passes repeat the random numbers of a forward pass with these two operators, which dispatch by a
    # table of device types that is local to a function: openreg would raise "Backend not supported".
    save, replay = rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state

    def generator_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
        """The generator of the device that draws: the named one, else that of a tensor. Numbers may be CPU tensors."""
        named = [torch.device(kwargs["device"])] if kwargs.get("device") else []
        leaves = tree_leaves((args, kwargs))
        named += [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        devices = named[:1] or [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return next((openreg._get_generator(device) for device in devices if device.type == NAME), None)

    def saved(original: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        generator = generator_of(args, kwargs)
        if generator is None:
            return original(op, *args, **kwargs)
        return generator.get_state(), op(*args, **kwargs)

    def replayed(original: Any, state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        generator = generator_of(args, kwargs)
        if generator is None:
            return original(state, op, *args, **kwargs)
        now = generator.get_state()
        generator.set_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            generator.set_state(now)

    for operator, function in ((save, saved), (replay, replayed)):
        original = operator.py_kernels[DispatchKey.BackendSelect]
        operator.py_kernels[DispatchKey.BackendSelect] = functools.partial(function, original)
        operator._dispatch_cache.clear()
    registered_hop_fake_fns[save] = functools.partial(saved, registered_hop_fake_fns[save])


def patch_fake_convolutions(module: ModuleType) -> None:
    # A fake convolution looks up the backend that would compute it, and uses its memory format. Custom devices have
    # none and get the contiguous format; this one computes as the CPU, with channels last if an argument has it.
    table = module.op_implementations_dict
    aten = torch.ops.aten
    original = table[aten.convolution.default]

    @functools.wraps(original)
    def convolution(mode: Any, op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, module.FakeTensor)]
        device = tensors[0].fake_device
        if device.type != NAME or any(tensor.fake_device != device for tensor in tensors):
            return original(mode, op, *args, **kwargs)
        _set_fake_device(tensors, torch.device("cpu"))
        try:
            results = original(mode, op, *args, **kwargs)
        finally:
            _set_fake_device(tensors, device)
        _set_fake_device([leaf for leaf in tree_leaves(results) if leaf is not None], device)
        return results

    for op in [op for op, function in table.items() if function is original]:
        table[op] = convolution


def _set_fake_device(tensors: list[Any], device: torch.device) -> None:
    for tensor in tensors:
        tensor.fake_device = device


def patch_opcheck(module: ModuleType) -> None:
    # torch.library.opcheck tests whether an operator's autograd is registered at the right key, and knows the keys of
    # three devices only: "NYI devices other than CPU/CUDA/XPU".
    original = module.autograd_registration_check

    @functools.wraps(original)
    def autograd_registration_check(op: torch._ops.OpOverload, args: Any, kwargs: Any) -> None:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if all(tensor.device.type != NAME for tensor in tensors):
            original(op, args, kwargs)
            return
        has_kernel = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, op.name())
        if any(has_kernel(key) for key in (f"Autograd{KEY}", "Autograd", "CompositeImplicitAutograd")):
            return
        with module.set_autograd_fallback_mode("nothing"):
            results = tree_leaves(op(*args, **kwargs))
        given = {id(tensor) for tensor in tensors}
        if any(isinstance(each, torch.Tensor) and each.requires_grad and id(each) not in given for each in results):
            raise AssertionError(
                f"{op.name()}: a result requires a gradient, but the operator has no kernel at an autograd key: "
                "register its autograd there (torch.library.register_autograd, or DispatchKey::Autograd in C++), not "
                f"in the kernel for {KEY}"
            )

    module.autograd_registration_check = autograd_registration_check  # type: ignore[attr-defined]
