"""Programs: the Python that Inductor generates around kernels, on memory of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

NAME = "openreg"


class _OnTheDevice(PythonWrapperCodegen):
    """The differences from programs for the CPU. Kernels on CPU tensors are called as usual."""

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> Any:
        if device.type != NAME or config.test_configs.track_memory_lifecycle:
            return super().make_allocation(name, device, dtype, shape, stride, allocation_shape, is_pinned)  # type: ignore[no-untyped-call]
        # PyTorch would omit the device's index, and thus allocate on the current device.
        sizes, strides = self.codegen_python_shape_tuple(shape), self.codegen_python_shape_tuple(stride)
        allocated = sizes if allocation_shape is None else self.codegen_python_shape_tuple(allocation_shape)
        line = f"{name} = empty_strided_openreg({allocated}, {strides}, {dtype}, {device.index})"
        return line if allocated == sizes else f"{line}.as_strided({sizes}, {strides})"

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: list[str], *, device: torch.device | None = None, **others: Any
    ) -> None:
        if device is None or device.type != NAME:
            super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **others)
            return
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))  # type: ignore[no-untyped-call]


class OpenregWrapper(_OnTheDevice):
    """The generator of a program."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None and parent_wrapper is not None
            return _Subgraph(subgraph_name, parent_wrapper, partition_signatures)
        return OpenregWrapper()  # type: ignore[no-untyped-call]

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_openreg._inductor.programs import compiled_kernel")
        self.imports.writeline("from torch_openreg._inductor.programs import empty_strided as empty_strided_openreg")


class _Subgraph(_OnTheDevice, SubgraphPythonWrapperCodegen):
    """The generator of a function in a program: a branch, the body of a loop, a region that is compiled once."""
