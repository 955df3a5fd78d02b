"""Kernels in Triton. Where devices do not compute, a launch is a command that does nothing, and nothing is compiled."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch._compile import _disable_dynamo

from .. import _C, openreg
from .._slot import NAME

_BENCHMARK_CACHE = 256 << 20
"""Bytes that Triton's driver for CUDA allocates while it measures, to clear the cache of the GPU."""


class Driver:
    """What programs and Triton ask of its driver: a GPU of the device's properties."""

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=self._get_device_properties)

    def get_current_target(self) -> Any:
        backends = importlib.import_module("triton.backends.compiler")
        properties: Any = openreg.get_device_properties()
        return backends.GPUTarget("cuda", max(80, 10 * properties.major + properties.minor), 32)

    def get_current_device(self) -> int:
        return openreg.current_device()

    def get_current_stream(self, device: int) -> int:
        return openreg.current_stream(device).stream_id

    def get_active_torch_device(self) -> torch.device:
        return torch.device(NAME, openreg.current_device())

    def get_device_interface(self) -> Any:
        return torch.get_device_module(NAME)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(_BENCHMARK_CACHE, dtype=torch.uint8, device=NAME)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Any:
        """All configurations of a kernel are equally fast, so autotuning chooses the first one."""

        def measure(call: Any, *, quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
            cache = self.get_empty_cache_for_benchmark()
            call()
            del cache
            return [1.0] * len(quantiles)

        return measure

    @staticmethod
    def _get_device_properties(device: int) -> dict[str, int]:
        properties: Any = openreg.get_device_properties(device)
        return {
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "max_num_regs": properties.regs_per_multiprocessor,
            "multiprocessor_count": properties.multi_processor_count,
            "warpSize": properties.warp_size,
        }


def need_no_driver(module: ModuleType) -> None:
    """Called with triton.runtime.jit, whose import has loaded triton.runtime.driver."""
    drivers = module.driver
    original = type(drivers).active

    def active(self: Any) -> Any:
        return original.fget(self) if _C.computes() else _driver()

    type(drivers).active = property(active)


@functools.cache
def _driver() -> Driver:
    return Driver()


def launch_nothing(module: ModuleType) -> None:
    """Replaces the launch of triton.runtime.jit."""
    original = module.JITFunction.run

    @_disable_dynamo  # a compiled program calls it
    def launch(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        named = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
        bound = kernel.signature.bind(*args, **named)
        bound.apply_defaults()
        sizes = grid(bound.arguments) if callable(grid) else grid
        if 0 not in sizes:
            _submit(kernel, bound.arguments)

    @functools.wraps(original)
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        on_device = any(tensor.device.type == NAME for value in (*args, *kwargs.values()) for tensor in _tensors(value))
        if _C.computes() or not on_device:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        if warmup:
            raise RuntimeError(
                f"openreg: {self.__name__} cannot be compiled ahead of its launch while devices do not compute: "
                "Triton compiles nothing then, so there is no number of registers, and no binary"
            )
        return launch(self, grid, args, kwargs)

    module.JITFunction.run = run


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument, which may be a tuple, a descriptor or a reinterpreted tensor."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(getattr(value, "base", None), torch.Tensor):
        yield value.base


def _submit(kernel: Any, arguments: Mapping[str, Any]) -> None:
    written = _written(kernel, arguments)
    tensors, types = [], []
    for number, (name, value) in enumerate(arguments.items()):
        for tensor in _tensors(value):
            if tensor.device.type == "cpu" and not tensor.is_pinned():
                raise ValueError(f"Pointer argument (at {number}) cannot be accessed from Triton (cpu tensor?)")
            if tensor.device.type == NAME:
                tensors.append(tensor)
                # Nobody analyses what is written through a descriptor.
                types.append("const void*" if tensor is value and name not in written else "void*")
    _launcher(f"triton::{kernel.__name__}", tuple(types))(*tensors)


@functools.cache
def _launcher(name: str, types: tuple[str, ...]) -> Any:
    # Kernels of the device have a name each; those of one name that read and write different arguments have several.
    number = _numbers[name] = _numbers.get(name, 0) + 1
    return _C.compiled_kernel(name if number == 1 else f"{name}_{number}", 0, list(types))


_numbers: dict[str, int] = {}
_known: dict[tuple[Any, ...], frozenset[str]] = {}


def _written(kernel: Any, arguments: Mapping[str, Any]) -> frozenset[str]:
    """The names of the tensors that the kernel writes, by PyTorch's analysis of its code."""
    described = []
    for parameter in kernel.params:
        value = arguments[parameter.name]
        if parameter.is_constexpr:
            described.append(repr(value))
        else:
            described.append(repr(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__)
    key = (kernel, *described)
    if key not in _known:
        from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

        accesses = identify_accessed_tensors(kernel, dict(arguments), {})
        _known[key] = frozenset(dep.name for dep in accesses.read_writes.writes)
    return _known[key]
