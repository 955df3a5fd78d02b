"""Wraps the compilation of a graph: handles an unsupported mode, and adds advice to errors."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import compile_fx
from torch._inductor.utils import BoxedBool

from .. import _C
from .._slot import CAPTURES_COMPILED_GRAPHS, NAME

WAY_OUT = (
    'openreg: Inductor could not compile this graph; torch.compile(..., backend="aot_eager") runs it operator by '
    "operator and needs no C++ compiler"
)


def watch() -> None:
    """Wraps the compilation of each graph that has a tensor of the device, whether or not it is in a cache."""
    original: Callable[..., Any] = compile_fx._compile_fx_inner

    @functools.wraps(original)
    def compile_inner(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if not _uses_the_device(gm, example_inputs):
            return original(gm, example_inputs, *args, **kwargs)
        if kwargs.get("cudagraphs") and not CAPTURES_COMPILED_GRAPHS:
            _refuse_graphs()
            kwargs["cudagraphs"] = BoxedBool(False)
        try:
            if fault := _C.compile_fault():
                raise RuntimeError(f"openreg: {fault}")
            return original(gm, example_inputs, *args, **kwargs)
        except Exception as error:
            # Not a note: Dynamo raises its own exception with this one's text.
            if error.args and isinstance(error.args[0], str):
                error.args = (f"{error.args[0]}\n{WAY_OUT}", *error.args[1:])
            raise

    compile_fx._compile_fx_inner = compile_inner


def _uses_the_device(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    def on_the_device(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == NAME

    return any(map(on_the_device, inputs)) or any(on_the_device(node.meta.get("val")) for node in gm.graph.nodes)


@functools.cache
def _refuse_graphs() -> None:
    # Inductor's trees of graphs call torch.cuda by name. For a custom device it would silently skip them.
    warnings.warn(
        "openreg: Inductor captures no graphs of this device; mode='reduce-overhead' compiles as the default mode "
        "does, and mode='max-autotune' as 'max-autotune-no-cudagraphs'",
        stacklevel=2,
    )
