"""Registers the generators of kernels and programs for the device."""

from __future__ import annotations

from types import ModuleType

from torch._inductor import graph
from torch._inductor.codegen import common

from ...._slot import NAME
from .. import cpu_equivalence
from . import backports, compiling
from .aot import NoCppWrapper
from .flex_attention import replace_flex_attention
from .kernel_order import keep_order
from .placement import run_where_results_are
from .scheduling import OpenregScheduling
from .stream_switches import DeviceOperations, guard_where_streams_are_switched
from .version import VersionOfPrograms
from .waits import wait_where_values_need_it
from .wrapper import OpenregWrapper


def register(_: ModuleType) -> None:
    """Registers the device with Inductor. Called once, after its import."""
    cpu_equivalence.extend(cpu_equivalence.OF_INDUCTOR)
    # Convolutions use oneDNN, so programs with convolutions keep images in channels-last order.
    graph.SUPPORTED_MKLDNN_DEVICES = (*graph.SUPPORTED_MKLDNN_DEVICES, NAME)  # type: ignore[assignment]
    # The device's module could provide generators of code, but not the version that the cache of programs needs.
    common.register_backend_for_device(
        NAME, OpenregScheduling, OpenregWrapper, NoCppWrapper, device_custom_pass=VersionOfPrograms()
    )
    compiling.watch()
    replace_flex_attention()
    common.register_device_op_overrides(NAME, DeviceOperations())
    guard_where_streams_are_switched()
    run_where_results_are()
    keep_order()
    backports.apply()
    wait_where_values_need_it()
