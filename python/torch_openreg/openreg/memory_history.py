"""Snapshots of the allocator and its history, in the format that PyTorch's viewers read (docs/memory.md)."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch._utils import _augment_memory_snapshot_stack_traces
from torch.cuda._memory_viz import memory as _memory_flamegraph, segments as _segments_flamegraph

from .. import _C
from .._slot import NAME
from .arguments import DeviceLike, check_integer, check_type, device_index, pool_id
from .device import _lazy_init

_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}  # c10::CachingDeviceAllocator::RecordContext


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments of all devices and their blocks, as in `_snapshot`; empty before the first use of the device.

    Args:
        mempool_id: only segments of this pool (`MemPool.id`); (0, 0) and None: of all pools.
        include_traces: accepted for compatibility with CUDA; segments have no history.

    Raises:
        RuntimeError: `include_traces` is not a bool.
    """
    if not isinstance(include_traces, bool):
        raise RuntimeError(f"openreg: include_traces must be a boolean (got {include_traces!r})")
    pool = None if mempool_id is None else pool_id(mempool_id)
    if pool == (0, 0):
        pool = None
    segments: list[dict[str, Any]] = _C.memory_snapshot(None, pool, False)["segments"]
    return segments


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Starts or stops recording the history of device memory, on all devices; `_snapshot` returns it.

    While `fits` measures the program, this has no effect, and warns.

    Args:
        enabled: ``"all"``: keep a history; ``"state"``: only the stacks of allocated memory; None: stop, and discard.
        context: which stacks are kept: ``"state"``, of allocated memory; ``"alloc"``, also of each allocation in the
            history; ``"all"``, also of each free; None, none.
        stacks: ``"python"``, or ``"all"`` with C++ frames, which take longer.
        max_entries: the maximum number of entries in the history of a device; the oldest are dropped first.
        device: accepted for compatibility with CUDA, which also records on all devices.
        clear_history: whether to discard what was recorded before.
        compile_context, global_record_annotations: False; not supported.
        skip_actions: actions of `_snapshot` that are not recorded.
        record_pinned_host_memory: False; pinned memory has statistics (`host_memory_stats`) but no history.
        record_cuda: True, that is, device memory.

    Raises:
        TypeError: `max_entries` is not an int, or an action is not a str.
        RuntimeError: an argument has another value than those above, or an action is unknown.
    """
    _check_one_of("enabled", enabled, (None, "state", "all"))
    _check_one_of("context", context, tuple(_CONTEXTS))
    _check_one_of("stacks", stacks, ("python", "all"))
    _check_one_of("compile_context", compile_context, (False,))
    _check_one_of("global_record_annotations", global_record_annotations, (False,))
    _check_one_of("record_pinned_host_memory", record_pinned_host_memory, (False,))
    _check_one_of("record_cuda", record_cuda, (True,))
    _check_one_of("clear_history", clear_history, (False, True))
    check_type("max_entries", max_entries, int, "an int")
    for action in skip_actions or ():
        check_type("an action to skip", action, str, "a str")
    if not 1 <= max_entries <= sys.maxsize:
        raise RuntimeError(f"openreg: max_entries is out of range (got {max_entries}, expected 1 to {sys.maxsize})")
    _lazy_init()
    if _C.is_allocation_log():
        warnings.warn("openreg: _record_memory_history does nothing while fits records allocations", stacklevel=2)
        return
    _C.record_memory_history(
        enabled is not None,
        enabled == "all",
        _CONTEXTS[context],
        stacks == "all",
        max_entries,
        clear_history,
        list(skip_actions or ()),
    )


def _check_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not any(value is one or (isinstance(value, str) and value == one) for one in allowed):
        raise RuntimeError(f"openreg: invalid {name} (got {value!r}, expected one of {', '.join(map(repr, allowed))})")


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The state of the allocator, and the history recorded since `_record_memory_history`.

    Args:
        device: only this device; the lists of the others are empty. Default all, as with CUDA.
        augment_with_fx_traces: as for `torch.cuda.memory._snapshot`.

    Returns:
        A dictionary that can be pickled, with

        - ``segments``: dictionaries with ``device``, ``address``, ``total_size``, ``stream`` (its id), ``segment_type``
          (``"small"``, ``"large"``), ``segment_pool_id``, ``allocated_size``, ``active_size``, ``requested_size``,
          ``is_expandable``, ``frames`` and ``blocks``. A block has ``address``, ``size``, ``requested_size``, ``state``
          (``"active_allocated"``; ``"active_pending_free"``: freed, but another stream still uses it; ``"inactive"``)
          and ``frames``, the stack that allocated it, if it was recorded: ``filename``, ``line``, ``name``.
        - ``device_traces``: for each device its history, oldest first: dictionaries with ``action`` (``"alloc"``,
          ``"free_requested"``, ``"free_completed"``; ``"segment_alloc"``, ``"segment_map"``, ``"segment_unmap"``,
          ``"segment_free"``: a segment was added, grew, shrank, was removed; ``"oom"``; ``"snapshot"``;
          ``"annotate"``), ``addr`` (``"oom"`` has ``device_free`` instead), ``size``, ``stream``, ``time_us``,
          ``pool_id``, ``frames``, ``user_metadata`` (see `_set_memory_metadata`, `_annotate_tensor`) and
          ``compile_context`` (empty).
        - ``allocator_settings``: ``PYTORCH_ALLOC_CONF`` and its parsed values.
        - ``external_annotations``: empty.
    """
    index = None if device is None else device_index(device)
    snapshot = _C.memory_snapshot(index, None, True)
    if augment_with_fx_traces:
        snapshot = _augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type, assignment]
    return snapshot


def _dump_snapshot(filename: str | Path = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes `_snapshot` to a file for PyTorch's viewers; docs/memory.md explains how to open it."""
    with Path(filename).open("wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _save_segment_usage(filename: str | Path = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Draws the segments as a flame graph, an SVG file. The first time, PyTorch fetches a script from the network."""
    Path(filename).write_text(_segments_flamegraph(snapshot or _snapshot()))


def _save_memory_usage(filename: str | Path = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Draws allocated memory by call stack as a flame graph, an SVG file.

    The first time, PyTorch fetches a script from the network.
    """
    Path(filename).write_text(_memory_flamegraph(snapshot or _snapshot()))


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack that allocated the memory that begins at `data_ptr`; None if there is none, or it was not recorded.

    Args:
        data_ptr: the address of a storage, not of a view into its middle.
    """
    return _C.allocation_traceback(check_integer("the address", data_ptr, 0, 2**64 - 1))


def _set_memory_metadata(metadata: str | dict[str, Any]) -> None:
    """Sets a text that is added to each later entry of the history that the calling thread makes.

    Args:
        metadata: the text; an empty string stops this. A dictionary is stored as JSON.

    Raises:
        TypeError: `metadata` is neither, or has values that JSON does not have.
    """
    check_type("the metadata", metadata, (str, dict), "a str or a dict")
    _C.set_memory_metadata(json.dumps(metadata, separators=(",", ":")) if isinstance(metadata, dict) else metadata)


def _get_memory_metadata() -> str:
    """The text set by `_set_memory_metadata` in this thread; empty if there is none."""
    return _C.get_memory_metadata()


def _memory_metadata_supported() -> bool:
    """True: the history has the texts of `_set_memory_metadata` and `_annotate_tensor`."""
    return True


def _annotate_tensor(tensor: torch.Tensor, metadata: str) -> None:
    """Adds an entry with a text to the history, for the memory of a tensor that exists already.

    Args:
        tensor: a tensor on the device; a view stands for its whole storage.
        metadata: the text, which is ``user_metadata`` of an entry whose action is ``"annotate"``.

    Raises:
        ValueError: the tensor is on another device.
    """
    check_type("the tensor", tensor, torch.Tensor, "a torch.Tensor")
    check_type("the metadata", metadata, str, "a str")
    if tensor.device.type != NAME:
        raise ValueError(f"openreg: the tensor is on another device (got {tensor.device}, expected {NAME})")
    _C.annotate_memory(tensor.untyped_storage().data_ptr(), metadata)
