"""``torch.openreg``: the device's module, with the names that users of ``torch.cuda`` expect.

If ``torch.accelerator`` has a function, the one here is a thin alias of it. Importing this module does not initialise
the device; neither do `is_available`, `device_count`, `is_initialized` and the functions for seeds and random states.

Unless a docstring says otherwise, functions of a `device` raise ValueError if it is not a device or has another type,
and RuntimeError if there is no such device.
"""

from __future__ import annotations

from typing import Any

import torch

from . import amp, faults, graphs, host_memory, legacy, machine, memory, nvtx, profiler, random, statistics, streams
from .amp import get_amp_supported_dtype as get_amp_supported_dtype, is_bf16_supported as is_bf16_supported
from .computing import *
from .device import *
from .device import (
    _exchange_device as _exchange_device,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_call as _lazy_call,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
)
from .faults import executor_pid as executor_pid, reset_device as reset_device
from .graphs import (
    CUDAGraph as CUDAGraph,
    export_dot as export_dot,
    graph as graph,
    graph_pool_handle as graph_pool_handle,
    is_current_stream_capturing as is_current_stream_capturing,
    make_graphed_callables as make_graphed_callables,
)
from .host_memory import *
from .machine import *
from .memory import *
from .memory_fits import fits as fits
from .races import *
from .random import *
from .random import (
    _get_generator as _get_generator,
    _get_rng_state_offset as _get_rng_state_offset,
    _set_rng_state_offset as _set_rng_state_offset,
)
from .schedules import *
from .statistics import *
from .streams import *
from .streams import _set_stream_by_id as _set_stream_by_id, _sleep as _sleep
from .worlds import *

del peak, register_out_of_memory_hook  # noqa: F821  (names of torch.openreg.memory only)

AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError
globals().update(legacy.TYPES)

has_half = True
"""Whether the device has half precision."""
has_magma = False
"""Whether MAGMA, a linear algebra library for GPUs, is used."""

default_generators: tuple[torch.Generator, ...]
_initialized: bool

# Not assigned by its name: type checkers take the names from the imports, and cannot compute this list.
globals()["__all__"] = sorted(
    {name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, type(torch))}
    - {"Any", "annotations"}
    | {"default_generators"}  # which __getattr__ returns
    | {"amp", "faults", "graphs", "host_memory", "legacy", "machine", "memory", "nvtx", "profiler", "random"}
    | {"statistics", "streams"}
)


def __getattr__(name: str) -> Any:
    # torch reads these as attributes: one changes at the first use, the other depends on the settings.
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
