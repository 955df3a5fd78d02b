"""Kernels: Inductor's C++ for the CPU, with an entry function for the device."""

from __future__ import annotations

from typing import Any

from torch._inductor import config
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.utils import Placeholder, get_fused_kernel_name, parallel_num_threads
from torch._inductor.virtualized import V

from ...._slot import NAME
from .parts import used_in_part
from .sources import source_for_the_device
from .stream_switches import switches_streams


class OpenregScheduling(CppScheduling):
    """Inductor's generator of C++, with kernels that are commands of the device."""

    def codegen_node(self, node: Any) -> None:
        super().codegen_node(node)
        if switches_streams():
            self.flush()  # type: ignore[no-untyped-call]

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        wrapper = V.graph.wrapper_code
        known: dict[str, str] = wrapper.src_to_kernel
        arguments = self.kernel_group.args if kernel_args is None else kernel_args
        some = used_in_part(nodes, arguments)
        comment = f"\n// {NAME}" + (f", uses some elements of the arguments {some}" if some else "")
        of_the_device = src_code + comment  # the program may have the same kernel for the CPU
        if of_the_device in known:
            return known[of_the_device]
        fused = get_fused_kernel_name(nodes, config.cpp.descriptive_names) if config.cpp.descriptive_names else ""
        name = f"cpp_{fused}_{wrapper.next_kernel_suffix()}"
        known[of_the_device] = name
        source = src_code.replace(str(Placeholder.KERNEL_NAME), "kernel")
        source = source.replace(str(Placeholder.DESCRIPTIVE_NAME), name).replace("#pragma CMT", "//")
        types: list[str] = arguments.cpp_argdefs()[2]
        source = source_for_the_device(source, types, parallel_num_threads())
        if some:  # which belongs to the name of the library
            source += comment + "\n"
        body = f"compiled_kernel(async_compile, {name!r}, {types!r}, r'''\n{source}'''{f', {some}' if some else ''})"
        wrapper.define_kernel(name, body, gpu=False)
        return name
