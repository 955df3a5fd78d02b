"""The rates from which PyTorch estimates how long operators take, when it orders a graph or chooses what to compute
again. Without these functions PyTorch asks CUDA and Triton, which raise without a GPU."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from ... import openreg
from ..._slot import NAME

# Of one core, as in Note [Costs] of cpp/ops/launch/cost.cpp. They are not measured, so that a program is ordered in the
# same way in every run. Half precision is computed in float32.
_TERA_FLOPS = {torch.float64: 0.025, torch.float32: 0.05, torch.bfloat16: 0.05, torch.float16: 0.05}
_GIGABYTES_PER_SECOND = 4.0


def datasheet(module: ModuleType) -> Any:
    """The device's entry for torch._inductor.analysis.device_info."""
    properties = openreg.get_device_properties()
    cores = properties.multi_processor_count
    tops = {dtype: rate * cores for dtype, rate in _TERA_FLOPS.items()}
    return module.DeviceInfo(tops, _GIGABYTES_PER_SECOND * cores, properties.total_memory / 1e9)


def add_to_datasheets(module: ModuleType) -> None:
    """Makes torch._inductor.analysis.device_info find the device by its name."""
    original = module.lookup_device_info

    @functools.wraps(original)
    def lookup_device_info(name: str) -> Any:
        return datasheet(module) if name.lower() == NAME else original(name)

    module.lookup_device_info = lookup_device_info  # type: ignore[attr-defined]


def use_datasheet(module: ModuleType) -> None:
    """Makes torch._inductor.utils use the device's entry where it assumes that every GPU is CUDA's."""
    from torch._inductor.analysis import device_info

    module.get_gpu_dram_gbps = lambda: datasheet(device_info).dram_bw_gbs  # type: ignore[attr-defined]
    if not hasattr(module, "get_device_dram_gbps"):  # before 2.15, which asks for the device of the operator
        module.get_device_tflops = lambda dtype: datasheet(device_info).tops.get(dtype, 0.0)  # type: ignore[attr-defined]


def measure_on_the_device(module: ModuleType) -> None:
    """Makes torch._inductor.runtime.benchmarking time calls until they have completed, without CUDA's events."""
    kind = type(module.benchmarker)
    original = kind.benchmark_gpu

    @functools.wraps(original)
    def benchmark_gpu(self: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.cuda.is_available():
            return original(self, call, *args, **kwargs)

        def complete() -> None:
            call()
            openreg.synchronize()

        return self.benchmark_cpu(complete)

    kind.benchmark_gpu = benchmark_gpu
