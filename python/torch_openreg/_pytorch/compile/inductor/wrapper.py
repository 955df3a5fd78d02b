"""Programs: the Python that Inductor generates around kernels, on memory of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config, ir
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.stream_constants import DEFAULT_STREAM
from torch._inductor.stream_utils import get_stream_name
from torch._inductor.virtualized import V

from ...._slot import NAME
from . import waits
from .stream_switches import switches_streams


class _OnTheDevice(PythonWrapperCodegen):
    """The differences from programs for the CPU. Kernels on CPU tensors are called as usual."""

    _streams_are_declared = False

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

    def codegen_device_guard_enter(self, *args: Any, **kwargs: Any) -> None:
        scheduler = V.graph.scheduler
        if scheduler.current_stream_idx is not None:  # a kernel on CPU tensors came before: its `with` is still open
            scheduler.generate_stream_ctx_exit()
        self._declare_streams()
        super().codegen_device_guard_enter(*args, **kwargs)

    def codegen_cuda_stream_enter(self, *args: Any, **kwargs: Any) -> Any:
        self._declare_streams()
        return super().codegen_cuda_stream_enter(*args, **kwargs)

    def _declare_streams(self) -> None:
        """At the first kernel: PyTorch does it at the first one on a device, which one on CPU tensors may precede."""
        scheduler = V.graph.scheduler
        if self._streams_are_declared or not switches_streams():
            return
        self._streams_are_declared = True
        line = "from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index"
        if not self.imports.contains(line):
            self.imports.writeline(line)
        devices = sorted(waits.devices_of(scheduler))
        lines = [f"{waits.default_stream(scheduler, each)} = torch.{NAME}.current_stream({each})" for each in devices]
        if len(devices) > 1:
            lines.append(f"{DEFAULT_STREAM} = torch.{NAME}.current_stream()")
        for stream, user in scheduler.stream_idx_to_user_obj_idx.items():
            name = get_stream_name(stream)
            lines.append(f"{name} = get_external_object_by_index({user})")
            if len(devices) > 1:
                lines += [f"{waits.stream_on(scheduler, stream, each)} = stream_on({name}, {each})" for each in devices]
        for line in lines:
            self.writeline(line)  # type: ignore[no-untyped-call]

    def make_buffer_free(self, buffer: Any) -> str:
        line: str = super().make_buffer_free(buffer)
        name = buffer.get_name()
        used = "".join(f"{name}.record_stream({stream}); " for stream in _other_streams(buffer))
        return f"{used}{line}"

    def generate_return(self, output_refs: list[str]) -> None:
        order = waits.order()
        if order is not None and V.graph.is_backward:
            for stream, other in order.missing_at_the_end():
                self.wrapper_call.writeline(f"{stream}.wait_stream({other})")
            for name in dict.fromkeys(V.graph.get_output_names()):
                reader = order.stream_of_a_result(name)
                if reader is not None:
                    self.wrapper_call.writeline(f"{name}.record_stream({reader})")
        super().generate_return(output_refs)


def _other_streams(buffer: Any) -> list[str]:
    """The streams that use the memory of a tensor without the allocator knowing it."""
    if not switches_streams() or not _is_tensor_of_the_device(buffer):
        return []
    scheduler, name = V.graph.scheduler, buffer.get_name()
    others = set(waits.uses(scheduler, name))
    if not isinstance(buffer, ir.InputBuffer):
        others.discard(scheduler.get_buf_stream(name))
    return [waits.stream_on(scheduler, stream, buffer.get_device().index) for stream in sorted(others)]


def _is_tensor_of_the_device(buffer: Any) -> bool:
    if not isinstance(buffer, ir.Buffer) or isinstance(buffer.get_output_spec(), (ir.NoneLayout, ir.MultiOutputLayout)):
        return False
    device = buffer.get_device()
    return device is not None and device.type == NAME


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
        self.imports.writeline(f"from {__package__}.programs import compiled_kernel")
        self.imports.writeline(f"from {__package__}.programs import empty_strided as empty_strided_openreg")
        self.imports.writeline(f"from {__package__}.programs import stream_on")


class _Subgraph(_OnTheDevice, SubgraphPythonWrapperCodegen):
    """The generator of a function in a program: a branch, the body of a loop, a region that is compiled once."""
