"""The device as the plugin sees it: whether it is available, and what a test has left changed on it.

Importing this module does not import torch, and only `initialise` and `description` use the device before the tests do.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from .outstanding import own_module, used_module

FRAMES = 3  # Python lines reported for each leaked block
BLOCKS = 5  # leaked blocks reported


@functools.cache
def absence() -> str | None:
    """Why there is no device, or None."""
    for package in ("torch", "torch_openreg"):
        if importlib.util.find_spec(package) is None:
            return f"openreg: {package} is not installed"
    try:
        import torch
    except Exception as error:
        return f"openreg: torch cannot be imported: {error}"
    if not hasattr(torch, "openreg"):
        return "openreg: `import torch` did not load the device; `python -m torch_openreg` prints the reason"
    return None


def initialise() -> None:
    """Initialises the device. Raises RuntimeError if a setting is malformed."""
    import torch  # noqa: F401

    own_module().init()


def description(with_devices: bool) -> str:
    """One line for the report's header. Asks the device only `with_devices`."""
    import torch

    from torch_openreg import __version__

    versions = f"torch_openreg {__version__} for torch {torch.__version__}"
    if not with_devices:
        return versions
    memory = torch.get_device_module("openreg").get_device_properties(0).total_memory
    return f"{versions}, {torch.accelerator.device_count()} x {memory / 2**20:.0f} MiB"


def set_sync_debug_mode(mode: int | str) -> int:
    """Returns the mode that it replaces."""
    module = own_module()
    if module is None:
        return 0
    before = _sync_debug_mode()
    module.set_sync_debug_mode(mode)
    return before


def set_race_detection_mode(mode: str) -> str:
    """Waits for the devices, and returns the mode that it replaces."""
    module = own_module()
    if module is None:
        return "off"
    before: str = module.get_race_detection_mode()
    module.set_race_detection_mode(mode)
    return before


def take_race_reports() -> list[str]:
    """The reports since the last call, also of those errors that the program has caught."""
    from torch_openreg import _C

    return _C.take_race_reports()


def _sync_debug_mode() -> int:
    module = own_module()
    return 0 if module is None else int(module.get_sync_debug_mode())


def schedule() -> str:
    """The current schedule."""
    module = own_module()
    if module is None:
        return "earliest"
    try:
        return str(module.get_schedule())
    except RuntimeError:  # a setting is malformed, which fails the test that uses the device
        return "earliest"


def set_schedule(schedule: str) -> str:
    """Waits for the devices. Returns the schedule that it replaces."""
    import torch  # noqa: F401

    module = own_module()
    before = str(module.get_schedule())
    module.set_schedule(schedule)
    return before


def _profiles() -> bool:
    """Whether PyTorch's profiler runs in this thread."""
    autograd = getattr(sys.modules.get("torch"), "autograd", None)
    return autograd is not None and bool(autograd._profiler_enabled())


@dataclass
class State:
    """What a test must leave unchanged."""

    device: int = 0
    streams: dict[int, int] = field(default_factory=dict)  # by device; 0 is the default stream
    fractions: dict[int, float] = field(default_factory=dict)  # of the memory, by device
    sync_debug: int = 0
    profiles: bool = False
    memory: dict[int, int] = field(default_factory=dict)  # bytes by device
    blocks: set[tuple[int, int]] = field(default_factory=set)  # device and address
    has_process_group: bool = False

    def restore(self) -> None:
        """Restores all but memory and the process group, which cannot be taken from the test."""
        set_sync_debug_mode(self.sync_debug)
        module = used_module()
        if module is None:
            return
        import torch

        for index in range(module.device_count()):
            torch.accelerator.set_stream(_stream(module, index, self.streams.get(index, 0)))
            module.set_per_process_memory_fraction(self.fractions.get(index, 1.0), index)
        module.set_device(self.device)
        if _profiles() and not self.profiles:
            torch.autograd._disable_profiler()


def current_state(with_blocks: bool) -> State:
    module = used_module()
    if module is None:
        return State(sync_debug=_sync_debug_mode(), profiles=_profiles(), has_process_group=_has_process_group())
    devices = range(module.device_count())
    return State(
        device=module.current_device(),
        streams={index: module.current_stream(index).stream_id for index in devices},
        fractions={index: module.get_per_process_memory_fraction(index) for index in devices},
        sync_debug=_sync_debug_mode(),
        profiles=_profiles(),
        memory={index: module.memory_allocated(index) for index in devices},
        blocks={(device, block["address"]) for device, block in _blocks(module)} if with_blocks else set(),
        has_process_group=_has_process_group(),
    )


def remember_where_memory_is_allocated() -> None:
    """Starts recording now, or at the first use of the device."""
    module = own_module()
    if module is not None:
        module._lazy_call(lambda: module.memory._record_memory_history("state", context="state", stacks="python"))


def collect_garbage() -> None:
    """Frees what earlier tests left behind, including the traceback of the last failure, which pytest drops later."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    if used_module() is not None:
        gc.collect()


def leaks(before: State) -> list[str]:
    """One sentence for each leak since `before`. Collects garbage if memory has grown."""
    module = used_module()
    if module is None:
        return []
    now = current_state(with_blocks=False)
    found = []
    if now.device != before.device:
        found.append(f"device {now.device} is still current (it was {before.device})")
    for index, stream in now.streams.items():
        if stream != before.streams.get(index, 0):
            found.append(f"stream {stream} of openreg:{index} is still current (it was {before.streams.get(index, 0)})")
    for index, fraction in now.fractions.items():
        if fraction != before.fractions.get(index, 1.0):
            found.append(
                f"the memory of openreg:{index} is still limited to {fraction} of it "
                f"(it was {before.fractions.get(index, 1.0)})"
            )
    if now.sync_debug != before.sync_debug:
        found.append(f"the synchronisation debug mode is still {now.sync_debug} (it was {before.sync_debug})")
    if now.profiles and not before.profiles:
        found.append("the profiler still runs; call its stop()")
    if now.has_process_group and not before.has_process_group:
        found.append("the process group still has streams and threads; call torch.distributed.destroy_process_group()")
    return found + _leaked_memory(module, before)


def _leaked_memory(module: Any, before: State) -> list[str]:
    def growth() -> dict[int, int]:
        grown = {
            index: module.memory_allocated(index) - before.memory.get(index, 0)
            for index in range(module.device_count())
        }
        return {index: size for index, size in grown.items() if size > 0}

    if not growth():
        return []
    gc.collect()
    return [
        f"{size} bytes of openreg:{index} are still in use{_origins(module, index, before)}"
        for index, size in growth().items()
    ]


def _origins(module: Any, index: int, before: State) -> str:
    """Where the new blocks of a device were allocated, largest first."""
    new = [
        block
        for device, block in _blocks(module)
        if device == index and (device, block["address"]) not in before.blocks
    ]
    new.sort(key=lambda block: -block["requested_size"])
    lines = [
        f"\n    {block['requested_size']} bytes, allocated at "
        + " < ".join(f"{frame['filename']}:{frame['line']} in {frame['name']}" for frame in _frames(block))
        for block in new[:BLOCKS]
        if block["frames"]
    ]
    if len(new) > BLOCKS:
        lines.append(f"\n    and {len(new) - BLOCKS} more blocks")
    return "".join(lines)


def _frames(block: dict[str, Any]) -> list[dict[str, Any]]:
    """The innermost frames, without those of pytest."""
    frames = [frame for frame in block["frames"] if not frame["filename"].startswith(_folders_of_pytest())]
    return frames[:FRAMES]


@functools.cache
def _folders_of_pytest() -> tuple[str, ...]:
    """The folders of the modules of pytest and of this plugin. A folder of the tests may have any name."""
    specs = map(importlib.util.find_spec, ("_pytest", "pluggy", __package__))
    return tuple(f"{folder}{os.sep}" for spec in specs if spec for folder in spec.submodule_search_locations or ())


def _blocks(module: Any) -> list[tuple[int, dict[str, Any]]]:
    return [
        (segment["device"], block)
        for segment in module.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]


def _stream(module: Any, index: int, identity: int) -> Any:
    import torch

    return torch.Stream(stream_id=identity, device_index=index, device_type=module.default_stream(index).device_type)


def _has_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()
