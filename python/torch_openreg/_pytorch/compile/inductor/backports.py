"""Bugs in Inductor that hit programs for the device and that later releases of PyTorch fix."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._inductor.codegen.cpp import CppVecKernel
from torch._inductor.graph import SubgraphLowering
from torch._inductor.ops_handler import WrapperHandler
from torch._inductor.virtualized import V

from ...._slot import NAME


def apply() -> None:
    """Applies the fixes to the installed PyTorch. They change nothing in a release that contains them."""
    _add_to_one_element()
    _keep_inputs_of_subgraphs()


# --- Fixed in 2.14: adding all elements of a vector to one element of a tensor failed an assertion ---


def _add_to_one_element() -> None:
    original: Any = CppVecKernel.store

    @functools.wraps(original)
    def store(self: Any, name: str, index: Any, value: Any, mode: Any = None) -> Any:
        if mode != "atomic_add" or V.graph.get_current_device_or_throw().type != NAME:
            return original(self, name, index, value, mode)
        with V.set_ops_handler(_VectorsOfIndices(V.get_ops_handler())):
            return original(self, name, index, value, mode)

    CppVecKernel.store = store  # type: ignore[method-assign]


class _VectorsOfIndices(WrapperHandler):
    """Operations of a vectorised kernel in which each index is a vector."""

    def index_expr(self, expr: Any, dtype: torch.dtype) -> Any:
        index = super().index_expr(expr, dtype)
        return index if index.is_vec else V.kernel.broadcast(index)


# --- Fixed in 2.15: the indices of the inputs that a backward graph may overwrite were applied to its subgraphs, whose
# inputs are others, so gradients were wrong ---


def _keep_inputs_of_subgraphs() -> None:
    original = SubgraphLowering.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.bw_donated_idxs = None

    SubgraphLowering.__init__ = init  # type: ignore[method-assign]
