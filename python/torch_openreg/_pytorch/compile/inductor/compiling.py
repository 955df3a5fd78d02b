"""Wraps the compilation of a graph: handles an unsupported mode, adds advice to errors, and injects faults."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
from torch._inductor import compile_fx
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.utils import BoxedBool

from .... import _C
from ...._slot import CAPTURES_COMPILED_GRAPHS, NAME

HINT = (
    'openreg: Inductor could not compile this graph; torch.compile(..., backend="aot_eager") runs it operator by '
    "operator and needs no C++ compiler"
)


class _ThreadState(threading.local):
    """What the calling thread compiles and loads."""

    compiles = False
    """Inductor compiles a graph, or takes it from its own cache."""
    loads = 0
    """Programs, forward and backward pass, are being taken from the cache of AOTAutograd."""
    fault: RuntimeError | None = None
    """The fault injected into such a program."""


_state = _ThreadState()


def watch() -> None:
    """Wraps the compilation of each graph that has a tensor of the device, whether or not it is in a cache."""
    _watch_compilations()
    _watch_programs_of_caches()
    _watch_the_cache_of_autograd()


def _watch_compilations() -> None:
    original: Callable[..., Any] = compile_fx._compile_fx_inner

    @functools.wraps(original)
    def compile_inner(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if not _uses_the_device(gm, example_inputs):
            return original(gm, example_inputs, *args, **kwargs)
        if kwargs.get("cudagraphs") and not CAPTURES_COMPILED_GRAPHS:
            _refuse_graphs()
            kwargs["cudagraphs"] = BoxedBool(False)
        before, _state.compiles = _state.compiles, True
        try:
            if fault := _fault():
                raise fault
            return original(gm, example_inputs, *args, **kwargs)
        except Exception as error:
            # Not a note: Dynamo raises its own exception with this one's text.
            if error.args and isinstance(error.args[0], str):
                error.args = (f"{error.args[0]}\n{HINT}", *error.args[1:])
            raise
        finally:
            _state.compiles = before

    compile_fx._compile_fx_inner = compile_inner


def _watch_programs_of_caches() -> None:
    """Wraps a method that PyTorch calls for each compiled graph, also if it has loaded it without `compile_inner`."""
    original = CompiledFxGraph.post_compile

    @functools.wraps(original)
    def post_compile(self: CompiledFxGraph, *args: Any, **kwargs: Any) -> None:
        if not _state.compiles and NAME in self.device_types and (fault := _fault()):
            if not _state.loads:
                raise fault
            _state.fault = _state.fault or fault
        original(self, *args, **kwargs)

    CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign]


def _watch_the_cache_of_autograd() -> None:
    """Raises an injected error once PyTorch has loaded all: after an error it would compile what it could not load."""
    original = AOTAutogradCache.try_load

    @functools.wraps(original)
    def try_load(*args: Any, **kwargs: Any) -> Any:
        _state.loads += 1
        try:
            loaded = original(*args, **kwargs)
        finally:
            _state.loads -= 1
        fault = _state.fault
        if fault and not _state.loads:
            _state.fault = None
            raise fault
        return loaded

    AOTAutogradCache.try_load = staticmethod(try_load)  # type: ignore[method-assign]


def _fault() -> RuntimeError | None:
    fault = _C.compile_fault()
    return RuntimeError(f"openreg: {fault}") if fault else None


def _uses_the_device(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    def on_the_device(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == NAME

    return any(map(on_the_device, inputs)) or any(on_the_device(node.meta.get("val")) for node in gm.graph.nodes)


@functools.cache
def _refuse_graphs() -> None:
    # Inductor's trees of graphs call torch.cuda by name. For a custom device it would silently skip them.
    warnings.warn(
        "openreg: Inductor does not capture graphs on this device; mode='reduce-overhead' compiles as the default "
        "mode does, and mode='max-autotune' as 'max-autotune-no-cudagraphs'",
        stacklevel=2,
    )
