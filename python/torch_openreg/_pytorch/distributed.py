"""Registers the backend ``occl`` when torch.distributed is imported. Its implementation is in cpp/distributed."""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch

from .. import _C, openreg
from .._slot import NAME
from . import fake_world

BACKEND = "occl"


def register(c10d: ModuleType) -> None:
    """Called with torch.distributed.distributed_c10d."""
    if not c10d._GLOO_AVAILABLE:
        return  # PyTorch then reports an unknown backend for the device
    # A list: PyTorch would iterate over the letters of a string.
    c10d.Backend.register_backend(BACKEND, _create, extended_api=True, devices=[NAME])
    # Since 2.15 PyTorch attaches its flight recorder to groups whose backends do not record. This one's Gloo does.
    recording: set[str] = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    recording.add(BACKEND)
    _patch_backends_of_groups(c10d)
    _patch_names_of_groups(c10d)
    fake_world.adapt_if_entered(c10d)


def register_fake(fake_pg: ModuleType) -> None:
    """Called with the module of PyTorch's fake group, which has a fixed list of devices."""
    fake_pg.dist.Backend.backend_capability["fake"].append(NAME)


def pin_for_the_device(utilities: ModuleType) -> None:
    """Called with the module through which PyTorch pins shared memory for checkpoints, by CUDA's runtime only."""
    if not torch.cuda.is_available():
        utilities.pin_memory = _C.register_pinned_memory  # type: ignore[attr-defined]
        utilities.unpin_memory = _C.unregister_pinned_memory  # type: ignore[attr-defined]


def pin_while_staging(stager: ModuleType) -> None:
    """Called with the module that stages checkpoints, which warns and pins nothing without CUDA."""
    original = stager.StateDictStager.__init__

    @functools.wraps(original)
    def __init__(self: Any, pin_memory: bool = False, *args: Any, **kwargs: Any) -> None:
        original(self, pin_memory and torch.cuda.is_available(), *args, **kwargs)
        self.pin_memory = pin_memory

    stager.StateDictStager.__init__ = __init__


def order_threads(threaded: ModuleType) -> None:
    """Called with PyTorch's group of threads, in which one thread computes for all, on its own current streams.

    Nothing orders this with the other threads' streams, which queued the inputs and use the results, so the hosts wait.
    """
    original = threaded.Collective.join

    @functools.wraps(original)
    def join(self: Any, rank: int, data: Any) -> Any:
        _wait_for_current_streams()
        if rank == 0:
            work = self._collective.work

            def work_and_wait(data: Any) -> None:
                work(data)
                _wait_for_current_streams()

            self._collective.work = work_and_wait
        return original(self, rank, data)

    threaded.Collective.join = join


def _wait_for_current_streams() -> None:
    if openreg.is_initialized():
        for device in range(openreg.device_count()):
            openreg.current_stream(device).synchronize()


def _create(options: Any, _: Any) -> Any:
    return _C.make_process_group(options, _make_gloo if fake_world.current() is None else None)


def _make_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from torch._C._distributed_c10d import ProcessGroupGloo

    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout
    # Lazy: ranks connect when they first communicate, so that two can begin without the others.
    interfaces = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    options._devices = [
        ProcessGroupGloo.create_device(interface=interface, lazy_init=True) for interface in interfaces
    ] or [ProcessGroupGloo.create_default_device(lazy_init=True)]
    options._threads = 2 * len(options._devices)
    return ProcessGroupGloo(store, rank, size, options)


def _patch_backends_of_groups(c10d: ModuleType) -> None:
    # If the program names no backend, PyTorch uses only the accelerator's. A program on CPU tensors, which would get
    # Gloo without the device, must still get Gloo. If a program names Gloo, it serves the device too, as for CUDA.
    original = c10d.BackendConfig.__init__
    gloo = c10d.Backend.GLOO

    @functools.wraps(original)
    def __init__(self: Any, backend: Any) -> None:
        original(self, backend)
        backends = self.device_backend_map
        if str(backend) == c10d.Backend.UNDEFINED and list(backends) == [NAME]:
            self.device_backend_map = {"cpu": gloo, **backends}
        elif str(backend).lower() == gloo:
            # If the backends are not all the same, PyTorch makes one for each device: no second Gloo for absent GPUs.
            if not torch.cuda.is_available():
                backends.pop("cuda", None)
            backends[NAME] = c10d.Backend(BACKEND)
        elif backends.get(NAME) == gloo:
            backends[NAME] = c10d.Backend(BACKEND)
        _refuse_backends_of_others(c10d, backends)

    c10d.BackendConfig.__init__ = __init__


def _refuse_backends_of_others(c10d: ModuleType, backends: dict[str, str]) -> None:
    # Since 2.15 NCCL has more names: nccl2, nccl-lazy, nccl-legacy.
    available = {
        "nccl": c10d.is_nccl_available() and torch.cuda.is_available(),
        "xccl": c10d.is_xccl_available() and torch.xpu.is_available(),
        "mpi": c10d.is_mpi_available(),
        "ucc": c10d.is_ucc_available(),
    }
    for device, backend in backends.items():
        family = backend.partition("-")[0].rstrip("2")
        if family in available and (device == NAME or not available[family]):
            raise RuntimeError(
                f"openreg: the backend {backend} is not available for {device}; the device's is {BACKEND}: use "
                f'"{BACKEND}", "cpu:gloo,{NAME}:{BACKEND}", or init_process_group() without a backend'
            )


def _patch_names_of_groups(c10d: ModuleType) -> None:
    # A group with several backends has the name of one: NCCL's if it is among them, otherwise Gloo's. PyTorch decides
    # by that name: SyncBatchNorm avoids a collective that Gloo lacks; DistributedDataParallel mistakes the wrapper that
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts around the backend for Gloo's class, and crashes. If the program
    # names Gloo for the group, the group keeps that name, unless there are wrappers.
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        group, store = original(*args, **kwargs)
        if f"{NAME}:{BACKEND}" in c10d._world.pg_backend_config.get(group, ""):
            named_gloo = c10d.get_backend(group) == c10d.Backend.GLOO
            if not named_gloo or c10d.get_debug_level() == c10d.DebugLevel.DETAIL:
                group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        return group, store

    c10d._new_process_group_helper = _new_process_group_helper  # type: ignore[attr-defined]
