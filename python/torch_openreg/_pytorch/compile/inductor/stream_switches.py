"""Graphs that switch streams themselves. All others run on the stream that is current at the call."""

from __future__ import annotations

import functools

from torch._inductor import scheduler
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.virtualized import V

from ...._slot import NAME


class DeviceOperations(CpuDeviceOpOverrides):
    """The code for devices and streams in generated programs. A launch takes its device from its tensors."""

    def set_device(self, device_idx: int) -> str:
        return "pass"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.{NAME}.device({device_idx})"

    def current_stream(self) -> str:
        return f"torch.{NAME}.current_stream()"

    def synchronize(self) -> str:
        return f"torch.{NAME}.synchronize()"


def switches_streams() -> bool:
    """Whether the graph that is being compiled switches streams. If so, kernels must not be fused across a switch."""
    return bool(V.graph.scheduler._has_multi_stream_nodes())


def guard_where_streams_are_switched() -> None:
    """Inductor declares a program's streams in the device guard, which other programs for this device do not need."""
    original = scheduler.device_need_guard

    @functools.wraps(original)
    def device_need_guard(device: str) -> bool:
        return switches_streams() if device == NAME else original(device)

    scheduler.device_need_guard = device_need_guard
