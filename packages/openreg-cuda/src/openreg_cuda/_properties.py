"""What ``torch.cuda`` reports about the GPU: the facts of a profile, and what the machine has."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from types import ModuleType
from typing import Any

import torch

from .device.fits.profiles import Gpu, Profile

_MEMORY = "TORCH_OPENREG_MEMORY"
_MIB, _GIB = 1 << 20, 1 << 30


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """``torch.cuda.get_device_properties``: sizes are in bytes, rates in kHz."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    uuid: Any
    L2_cache_size: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block: int = 48 << 10
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    warp_size: int = 32
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    gcnArchName: str = ""
    clock_rate: int = 1_000_000
    memory_clock_rate: int = 1_000_000
    memory_bus_width: int = 256

    def __repr__(self) -> str:
        mib = 1 << 20
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // mib}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // mib}MB)"
        )


DeviceProperties.__name__ = DeviceProperties.__qualname__ = "_CudaDeviceProperties"


def limit_memory(profile: Profile) -> None:
    """Gives devices the memory of the GPU, unless the environment sets it, or the machine has less."""
    if profile.gpu is None or profile.total is None or _MEMORY in os.environ:
        return
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if profile.total * _MIB <= machine or os.environ.get("TORCH_OPENREG_COMPUTE") == "0":
        os.environ[_MEMORY] = f"{profile.total}MiB"
        return
    print(
        f"openreg-cuda: {profile.gpu.name} has {profile.total / 1024:.1f} GiB of memory, but this machine has only "
        f"{machine // _GIB} GiB, which all devices share",
        file=sys.stderr,
    )


def answer_from_the_profile(module: ModuleType, gpu: Gpu) -> None:
    """torch.cuda's functions about a device's properties."""
    cuda: Any = torch.cuda
    original = module.get_device_properties

    @functools.cache
    def properties_of(index: int) -> DeviceProperties:
        ours = original(index)
        multiprocessor, block = gpu.shared
        return DeviceProperties(
            name=gpu.name,
            major=gpu.capability[0],
            minor=gpu.capability[1],
            total_memory=ours.total_memory,
            multi_processor_count=gpu.multiprocessors,
            uuid=ours.uuid,
            L2_cache_size=gpu.l2 << 20,
            shared_memory_per_block_optin=block << 10,
            shared_memory_per_multiprocessor=multiprocessor << 10,
            max_threads_per_multi_processor=gpu.threads,
        )

    def get_device_properties(device: Any = None) -> DeviceProperties:
        original(device)  # which checks the device
        return properties_of(cuda._utils._get_device_index(device, optional=True))

    def get_device_name(device: Any = None) -> str:
        return get_device_properties(device).name

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        found = get_device_properties(device)
        return found.major, found.minor

    for function in (get_device_properties, get_device_name, get_device_capability):
        function.__doc__ = getattr(module, function.__name__).__doc__
        setattr(cuda, function.__name__, function)
    cuda._get_device_properties = get_device_properties
    _C: Any = torch._C
    cuda._CudaDeviceProperties = _C._CudaDeviceProperties = DeviceProperties
