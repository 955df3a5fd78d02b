"""``torch.cuda.Event``: PyTorch's class, over ``torch._C._CudaEventBase``, which only a build with CUDA has."""

from __future__ import annotations

import importlib.util
from multiprocessing import reduction
from types import ModuleType
from typing import Any

import torch
from torch.multiprocessing import reductions

from ._interprocess import SharedRecords


def make_base(_C: Any, check_flags: Any) -> Any:
    """The base class."""

    class _CudaEventBase(torch.Event):
        _shared: SharedRecords | None = None  # with other processes

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> _CudaEventBase:
            check_flags(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess, external=external)
            made = super().__new__(cls, "cuda", enable_timing=bool(enable_timing), blocking=bool(blocking))
            if interprocess:
                if enable_timing:
                    raise RuntimeError("openreg: interprocess events do not support timing (got enable_timing=True)")
                made._shared = SharedRecords.make(_C)
            return made

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: bytes) -> _CudaEventBase:
            """The event of another process, or of this one.

            Raises:
                RuntimeError: the handle is invalid, or its event no longer exists.
            """
            shared = SharedRecords.of_handle(handle, _C)
            made = super().__new__(cls, "cuda")
            made._shared = shared
            return made

        @property
        def cuda_event(self) -> int:
            """The event's handle; 0 before the first record."""
            return int(self.event_id)

        @property
        def device(self) -> torch.device | None:  # type: ignore[override]
            """The device of the first record; None before."""
            device = super().device
            return None if device.index is None else device

        def record(self, stream: torch.Stream) -> None:  # type: ignore[override]
            super().record(stream)
            if self._shared is not None:
                self._shared.record(stream)

        def wait(self, stream: torch.Stream) -> None:  # type: ignore[override]
            if self._recorded_elsewhere():
                self.synchronize()
            else:
                super().wait(stream)

        def query(self) -> bool:
            return self._shared.query() if self._recorded_elsewhere() else super().query()  # type: ignore[union-attr]

        def synchronize(self) -> None:
            if self._recorded_elsewhere():
                self._shared.synchronize()  # type: ignore[union-attr]
            else:
                super().synchronize()

        def elapsed_time(self, end_event: torch.Event) -> float:
            if self._shared is not None:
                raise RuntimeError("openreg: interprocess events do not support timing; time other events")
            return float(_C.elapsed_time(self, end_event))

        def ipc_handle(self) -> bytes:
            """The handle from which another process creates the event, while this one exists."""
            if self._shared is None:
                raise RuntimeError("openreg: not an interprocess event; create it with interprocess=True")
            return self._shared.handle()

        def _recorded_elsewhere(self) -> bool:
            return self._shared is not None and not self._shared.newest_is_own()

    return _CudaEventBase


def provide(module: ModuleType, _C: Any) -> None:
    """Makes ``torch.cuda.Event`` and `module.Event` PyTorch's class."""
    arguments = importlib.import_module(".device.openreg.arguments", __package__)
    torch._C._CudaEventBase = make_base(_C, arguments.check_flags)  # type: ignore[misc]
    streams: Any = importlib.import_module("torch.cuda.streams")
    # PyTorch's file, run again: when it was imported, there were no such base classes.
    loader = streams.__spec__.loader
    again: Any = importlib.util.module_from_spec(streams.__spec__)
    loader.exec_module(again)
    everywhere: tuple[Any, ...] = (module, module.streams, torch.cuda, streams)
    for each in everywhere:
        each.Event = again.Event
    # As PyTorch does for its own. Before version 2.15 the function had no underscore.
    reduce_event = getattr(reductions, "_reduce_event", None) or reductions.reduce_event
    reduction.register(again.Event, reduce_event)
    module.Stream.record_event = again.Stream.record_event
