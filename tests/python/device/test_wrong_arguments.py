"""Wrong arguments to the functions of torch.openreg: the type of the exception, and what was given in its text.

Each function that takes an argument has a row here, or a reason in `PYTORCHS`.
"""

from __future__ import annotations

import gc
import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

openreg, memory, nvtx = torch.openreg, torch.openreg.memory, torch.openreg.nvtx
NO_DEVICE = [1.5, [], b"openreg", object(), torch.zeros(1)]
OTHER_KINDS = ["cpu", "cuda:0", torch.device("meta")]
MISSING = [2, 99, 200, 2**40, 2**70, "openreg:99", torch.device("openreg", 99)]
NEGATIVE = [-1, -2, -(2**40)]


def entered(context: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    def enter(*args: Any) -> None:
        with context(*args):
            pass

    return enter


# Functions of a device. The flag: a negative index means the current device, as for torch.cuda's.
DEVICES: dict[str, tuple[Callable[..., Any], bool]] = {
    "Event": (lambda device: openreg.Event(device=device), True),
    "Stream": (openreg.Stream, True),
    "ExternalStream": (lambda device: openreg.ExternalStream(0, device), False),
    "get_stream_from_external": (lambda device: openreg.get_stream_from_external(0, device), False),
    "_get_generator": (openreg._get_generator, True),
    "current_stream": (openreg.current_stream, True),
    "default_stream": (openreg.default_stream, True),
    "device": (entered(openreg.device), True),
    "set_device": (openreg.set_device, True),
    "synchronize": (openreg.synchronize, True),
    "_get_rng_state_offset": (openreg._get_rng_state_offset, False),
    "_set_rng_state_offset": (lambda device: openreg._set_rng_state_offset(0, device), False),
    "caching_allocator_alloc": (lambda device: openreg.caching_allocator_alloc(8, device), False),
    "can_device_access_peer": (lambda device: openreg.can_device_access_peer(device, 0), False),
    "clock_rate": (openreg.clock_rate, False),
    "device_memory_used": (openreg.device_memory_used, False),
    "get_device_capability": (openreg.get_device_capability, False),
    "get_device_name": (openreg.get_device_name, False),
    "get_device_properties": (openreg.get_device_properties, False),
    "get_per_process_memory_fraction": (openreg.get_per_process_memory_fraction, False),
    "get_rng_state": (openreg.get_rng_state, False),
    "list_gpu_processes": (openreg.list_gpu_processes, False),
    "max_memory_allocated": (openreg.max_memory_allocated, False),
    "max_memory_cached": (openreg.max_memory_cached, False),
    "max_memory_reserved": (openreg.max_memory_reserved, False),
    "executor_pid": (openreg.executor_pid, False),
    "mem_get_info": (openreg.mem_get_info, False),
    "memory._snapshot": (memory._snapshot, False),
    "memory.peak": (entered(memory.peak), False),
    "memory_allocated": (openreg.memory_allocated, False),
    "memory_cached": (openreg.memory_cached, False),
    "memory_reserved": (openreg.memory_reserved, False),
    "memory_stats": (openreg.memory_stats, False),
    "memory_stats_as_nested_dict": (openreg.memory_stats_as_nested_dict, False),
    "memory_summary": (openreg.memory_summary, False),
    "memory_usage": (openreg.memory_usage, False),
    "power_draw": (openreg.power_draw, False),
    "reset_accumulated_memory_stats": (openreg.reset_accumulated_memory_stats, False),
    "reset_device": (lambda device: openreg.reset_device(device, keep_memory=True), False),
    "reset_max_memory_allocated": (openreg.reset_max_memory_allocated, False),
    "reset_max_memory_cached": (openreg.reset_max_memory_cached, False),
    "reset_peak_memory_stats": (openreg.reset_peak_memory_stats, False),
    "set_per_process_memory_fraction": (lambda device: openreg.set_per_process_memory_fraction(1.0, device), False),
    "set_rng_state": (lambda device: openreg.set_rng_state(torch.zeros(16, dtype=torch.uint8), device), False),
    "temperature": (openreg.temperature, False),
    "use_mem_pool": (lambda device: entered(openreg.use_mem_pool)(openreg.MemPool(), device), False),
    "utilization": (openreg.utilization, False),
}
# Where only -1 means the current device.
ONLY_MINUS_ONE = {"current_stream", "default_stream"}
# Where a device needs an index.
INDEXED = {
    "caching_allocator_alloc",
    "get_per_process_memory_fraction",
    "set_per_process_memory_fraction",
    "use_mem_pool",
}
# Where torch.cuda raises an AssertionError for a device that does not exist.
ASSERTED = {"can_device_access_peer", "get_device_capability", "get_device_name", "get_device_properties"}


def recorded(device: int = 0, timing: bool = True) -> torch.Event:
    event = openreg.Event(enable_timing=timing)
    event.record(openreg.Stream(device))
    event.synchronize()
    return event


def gone() -> torch.Stream:
    """A stream that does not exist."""
    return openreg.Stream(stream_id=12345, device_index=0, device_type=20)


def state(size: int = 16, dtype: torch.dtype = torch.uint8, **options: Any) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype, **options)


def captured(**options: Any) -> torch.openreg.CUDAGraph:
    graph = options.setdefault("cuda_graph", openreg.CUDAGraph())
    with openreg.graph(**options):
        torch.ones(2, device="openreg")
    return graph


def dumped(path: Any) -> None:
    graph = captured()
    graph.enable_debug_mode()
    graph.debug_dump(path)


def graphed(callables: Any, *sample_args: Any, **options: Any) -> None:
    openreg.make_graphed_callables(callables, *(sample_args or [()]), **options)


NOT_INTEGERS = [None, 1.5, "x", True, []]
NOT_STREAMS = [1, 1.5, "x", torch.device("openreg")]
NOT_POOLS = [1, 1.5, "x", "xy", (1,), (1, 2, 3), ("a", 1), (-1, 0), (2**64, 0), (1.5, 2)]
NO_SUCH_STREAM = (RuntimeError, r"no such stream \(got 12345, expected the id of a stream")
# The second sentence is that of Python 3.12 and later.
NO_PATH = r"expected str, bytes or os\.PathLike|argument should be a str or an os\.PathLike"

# Other arguments: calls, the values given to each, the exception, a pattern that its text has.
Row = tuple[Callable[..., Any], list[Any], type[Exception], str]
ROWS: dict[str, list[Row]] = {
    "Stream": [
        (lambda v: openreg.Stream(priority=v), [None, 1.5, "x"], TypeError, "priority has the wrong type .*an int"),
        (lambda v: openreg.Stream(None, v), [2**31, -(2**31) - 1], OverflowError, "priority is out of range"),
        (lambda v: openreg.Stream(stream_id=v, device_index=0, device_type=20), ["x", 1.5], TypeError, "'stream_id'"),
        (lambda v: openreg.Stream(stream_id=0, device_index=v, device_type=20), [-1, 9, 2**40], RuntimeError, "range"),
        (
            lambda v: openreg.Stream(stream_id=0, device_index=0, device_type=v),
            [0],
            ValueError,
            "the stream has the wrong device type",
        ),
        (lambda v: openreg.Stream(unknown=v), [1], TypeError, r"does not identify a stream \(got unknown, expected"),
        (
            lambda v: openreg.Stream(stream_id=v),
            [0],
            TypeError,
            r"does not identify a stream \(got stream_id, expected",
        ),
        (lambda v: openreg.Stream(stream_ptr=v), NOT_INTEGERS, TypeError, "the handle of a stream is not an int"),
        (lambda use: use(gone()), [torch.Stream.query, torch.Stream.synchronize], *NO_SUCH_STREAM),
        (lambda use: use(gone()), [torch.Stream.record_event, torch.Stream.__enter__], *NO_SUCH_STREAM),
        (lambda v: openreg.Stream.__dict__[v].fget(gone()), ["priority", "_as_parameter_"], *NO_SUCH_STREAM),
        (lambda v: torch.ones(1, device="openreg").record_stream(v()), [gone], *NO_SUCH_STREAM),
    ],
    "Stream.wait_event": [
        (lambda v: openreg.Stream().wait_event(v), [*NOT_STREAMS, None], TypeError, "the event has the wrong type"),
        (lambda v: gone().wait_event(v()), [recorded], *NO_SUCH_STREAM),
    ],
    "Stream.wait_stream": [
        (lambda v: openreg.Stream().wait_stream(v), [*NOT_STREAMS, None], TypeError, "the stream has the wrong type"),
        (lambda v: openreg.Stream().wait_stream(v()), [gone], *NO_SUCH_STREAM),
    ],
    "Event": [
        (
            lambda v: openreg.Event(enable_timing=v),
            [None, 1.5, "x"],
            TypeError,
            "enable_timing has the wrong type .*a bool",
        ),
        (lambda v: openreg.Event(blocking=v), [None, 1.5, "x"], TypeError, "blocking has the wrong type .*a bool"),
        (
            lambda v: openreg.Event(interprocess=v),
            [None, 1.5, "x"],
            TypeError,
            "interprocess has the wrong type .*a bool",
        ),
        (lambda v: openreg.Event(external=v), [None, 1.5, "x"], TypeError, "external has the wrong type .*a bool"),
        (openreg.Event, [-1, 256, 2**70], OverflowError, "enable_timing is out of range .*expected 0 to 255"),
        (lambda v: openreg.Stream().record_event(v), [1.5, "x"], RuntimeError, "expected event to be a torch.Event"),
        (lambda v: recorded(0).record(openreg.Stream(v)), [1], RuntimeError, "got openreg:1, expected openreg:0"),
        (lambda v: recorded().elapsed_time(v), [None, 1.5, "x"], RuntimeError, "to be a torch.Event object"),
        (lambda v: recorded().elapsed_time(v), [openreg.Event(enable_timing=True)], ValueError, "must be recorded"),
        (lambda v: openreg.Event(enable_timing=True).elapsed_time(v()), [recorded], ValueError, "must be recorded"),
        (lambda v: recorded().elapsed_time(recorded(v)), [1], RuntimeError, "got events of openreg:0 and openreg:1"),
        (lambda v: recorded().elapsed_time(recorded(timing=v)), [False], ValueError, "enable_timing=True"),
        (lambda v: recorded(timing=v).elapsed_time(recorded()), [False], ValueError, "enable_timing=True"),
    ],
    "ExternalStream": [
        (openreg.ExternalStream, NOT_INTEGERS, TypeError, "the handle of a stream is not an int"),
        (openreg.ExternalStream, [-1, 2**64], ValueError, "the handle of a stream is out of range"),
        (openreg.ExternalStream, [1, 4096], RuntimeError, "no stream with this handle"),
        (lambda v: openreg.ExternalStream(0, priority=v), [-1, 1], RuntimeError, "has its own priority"),
    ],
    "get_stream_from_external": [(openreg.get_stream_from_external, NOT_INTEGERS, TypeError, "is not an int")],
    "StreamContext": [(openreg.StreamContext, NOT_STREAMS, TypeError, "expected a torch.Stream or None")],
    "stream": [(openreg.stream, NOT_STREAMS, TypeError, "expected a torch.Stream or None")],
    "set_stream": [
        (openreg.set_stream, NOT_STREAMS, TypeError, "expected a torch.Stream or None"),
        (lambda v: openreg.set_stream(v()), [gone], *NO_SUCH_STREAM),
    ],
    "_set_stream_by_id": [
        (lambda v: openreg._set_stream_by_id(v, 0, 20), ["x", None], TypeError, "'stream_id' must be int"),
        (lambda v: openreg._set_stream_by_id(v, 0, 20), [12345], *NO_SUCH_STREAM),
    ],
    "_sleep": [
        (openreg._sleep, NOT_INTEGERS, TypeError, "the number of cycles is not an int"),
        (openreg._sleep, [-1, 2**63], ValueError, "the number of cycles is out of range"),
    ],
    "_exchange_device": [
        (openreg._exchange_device, [None, 1.5, "openreg:0"], TypeError, "the index of a device"),
        (openreg._exchange_device, [2, 99, 2**40], RuntimeError, "out of range"),
    ],
    "_maybe_exchange_device": [
        (openreg._maybe_exchange_device, [None, 1.5, "openreg:0"], TypeError, "the index of a device"),
        (openreg._maybe_exchange_device, [2, 99, 2**40], RuntimeError, "out of range"),
    ],
    "_lazy_call": [(openreg._lazy_call, [None, 1, "x"], TypeError, "not callable")],
    "set_device": [(openreg.set_device, [None, "openreg"], ValueError, "not a device|has no index")],
    "device_of": [(openreg.device_of, [None, 1, "x"], AttributeError, "has no attribute 'device'")],
    "can_device_access_peer": [
        (lambda v: openreg.can_device_access_peer(0, v), [None, "openreg", 1.5], ValueError, "not a device|no index"),
        (lambda v: openreg.can_device_access_peer(0, v), [-1, 2, 99], AssertionError, "out of range"),
    ],
    "set_sync_debug_mode": [
        (
            openreg.set_sync_debug_mode,
            [3, -1, "x", "Warn", None, True, 1.0, []],
            RuntimeError,
            "invalid sync debug mode",
        ),
    ],
    "set_race_detection_mode": [
        (
            openreg.set_race_detection_mode,
            [0, 1, "x", "", None, True, [], "Warn", "ERROR"],
            RuntimeError,
            "invalid race detection mode",
        ),
    ],
    "assume": [
        (lambda v: openreg.assume(nonzero=v).__enter__(), [-0.1, 1.5], ValueError, "must be a part of the elements"),
        (lambda v: openreg.assume(routing=v).__enter__(), ["fair", ""], ValueError, "unknown routing"),
    ],
    "set_compute_mode": [(openreg.set_compute_mode, [None, 0, "0"], TypeError, "must be a bool")],
    "fits": [(lambda v: openreg.fits(v).__enter__(), ["h10", ""], ValueError, "unknown profile")],
    "fake_world": [
        (lambda v: openreg.fake_world(v).__enter__(), [0, -1, 65537], ValueError, "openreg: "),
        (lambda v: openreg.fake_world(2, v).__enter__(), [2, -1], ValueError, "openreg: "),
    ],
    "set_schedule": [
        (
            openreg.set_schedule,
            [None, 1, [], "", "Latest", "random", "random:", "random:-1", "random:1.5", f"random:{2**64}"],
            RuntimeError,
            "invalid schedule",
        ),
    ],
    "manual_seed": [
        (openreg.manual_seed, [None, []], TypeError, r"int\(\) argument must be"),
        (openreg.manual_seed, ["x", 2**64, -(2**63) - 1], ValueError, "invalid literal|Overflow"),
    ],
    "manual_seed_all": [
        (openreg.manual_seed_all, [None, []], TypeError, r"int\(\) argument must be"),
        (openreg.manual_seed_all, ["x", 2**64, -(2**63) - 1], ValueError, "invalid literal|Overflow"),
    ],
    "set_rng_state": [
        (openreg.set_rng_state, [None, 1.5, "x", []], TypeError, "expected a torch.ByteTensor, but got"),
        (openreg.set_rng_state, [state(dtype=torch.int8)], TypeError, "must be a torch.ByteTensor"),
        (
            lambda v: openreg.set_rng_state(state(device=v)),
            ["openreg", "meta"],
            TypeError,
            "must be a torch.ByteTensor",
        ),
        (openreg.set_rng_state, [state(0), state(15), state(17)], RuntimeError, "wrong size .*expected 16, or 8"),
        (openreg.set_rng_state, [state(32)[::2]], RuntimeError, "must be contiguous"),
        (openreg.set_rng_state, [state().index_fill(0, torch.tensor([8]), 1)], RuntimeError, r"got 1, .*multiple of 4"),
        (openreg.set_rng_state, [state().index_fill(0, torch.tensor([15]), 255)], RuntimeError, "offset is invalid"),
    ],
    "set_rng_state_all": [
        (openreg.set_rng_state_all, [None, 1.5], TypeError, "not iterable"),
        (openreg.set_rng_state_all, [[None]], TypeError, "expected a torch.ByteTensor"),
        (lambda v: openreg.set_rng_state_all([state()] * v), [3], RuntimeError, "out of range"),
    ],
    "_set_rng_state_offset": [
        (openreg._set_rng_state_offset, NOT_INTEGERS, RuntimeError, "expected a long, but got"),
        (
            openreg._set_rng_state_offset,
            [3, -4, -1],
            RuntimeError,
            "offset is invalid .got -?[134], expected a multiple",
        ),
    ],
    "set_per_process_memory_fraction": [
        (
            openreg.set_per_process_memory_fraction,
            [None, 1, "x", True],
            TypeError,
            "the memory fraction is not a float",
        ),
        (openreg.set_per_process_memory_fraction, [-0.1, 1.1, float("nan")], ValueError, "expected 0.0 to 1.0"),
    ],
    "caching_allocator_alloc": [
        (openreg.caching_allocator_alloc, NOT_INTEGERS, TypeError, "the size is not an int"),
        (openreg.caching_allocator_alloc, [-1, -(2**63), 2**63, 2**80], ValueError, "the size is out of range"),
        (openreg.caching_allocator_alloc, [2**45, 2**50, 2**62, 2**63 - 1], torch.OutOfMemoryError, "is out of memory"),
        (lambda v: openreg.caching_allocator_alloc(8, stream=v), [1.5, "x", True, []], TypeError, "is not an int"),
        (lambda v: openreg.caching_allocator_alloc(8, stream=v), [-1, 2**70], ValueError, "out of range"),
        (lambda v: openreg.caching_allocator_alloc(8, stream=v), [12345], RuntimeError, "no stream with this handle"),
        (
            lambda v: openreg.caching_allocator_alloc(8, 0, openreg.Stream(v)),
            [1],
            ValueError,
            "belongs to another device",
        ),
    ],
    "caching_allocator_delete": [
        (openreg.caching_allocator_delete, NOT_INTEGERS, TypeError, "the address is not an int"),
        (openreg.caching_allocator_delete, [-1, 2**64], ValueError, "the address is out of range"),
        (openreg.caching_allocator_delete, [1, 4096], RuntimeError, "invalid device pointer"),
    ],
    "change_current_allocator": [(openreg.change_current_allocator, [None, 1], RuntimeError, "cannot be replaced")],
    "CUDAGraph": [(openreg.CUDAGraph, [[], object(), "x"], TypeError, "keep_graph has the wrong type")],
    "CUDAGraph.capture_begin": [
        (lambda v: openreg.CUDAGraph().capture_begin(v), NOT_POOLS, TypeError, "not the id of a pool"),
        (lambda v: openreg.CUDAGraph().capture_begin(None, v), [None, 1, b"global"], TypeError, "capture_error_mode"),
        (lambda v: openreg.CUDAGraph().capture_begin(None, v), ["", "x"], RuntimeError, "unknown capture_error_mode"),
        (lambda v: openreg.CUDAGraph().capture_begin(None, "relaxed", v), [True], RuntimeError, "DEBUG_MEMORY=1"),
    ],
    "CUDAGraph.debug_dump": [
        (dumped, [None, 1, 1.5], TypeError, "expected str, bytes or os.PathLike"),
        (dumped, ["/nowhere/graph.dot"], RuntimeError, "could not be written .*/nowhere/graph.dot"),
    ],
    "CUDAGraph.register_generator_state": [
        (lambda v: openreg.CUDAGraph().register_generator_state(v), [None, 1, "x"], TypeError, "a torch.Generator"),
        (
            lambda v: openreg.CUDAGraph().register_generator_state(v),
            [torch.Generator()],
            RuntimeError,
            "the generator has the wrong device type .*got cpu",
        ),
    ],
    "graph": [
        (openreg.graph, [None, 1, "x", openreg.Stream, torch.accelerator.Graph], TypeError, "the graph has the wrong"),
        (lambda v: captured(pool=v), NOT_POOLS, TypeError, "not the id of a pool"),
        (lambda v: captured(stream=v), [1, "x"], TypeError, "the stream has the wrong type"),
        (lambda v: captured(stream=v()), [openreg.default_stream], RuntimeError, "on a non-default stream"),
        (lambda v: captured(capture_error_mode=v), [None, 1], TypeError, "capture_error_mode"),
        (lambda v: captured(enable_annotations=v), [True], RuntimeError, "annotations"),
        (lambda v: captured(annotation_config=v), [{}, {"key_by": "exec"}], RuntimeError, "annotations"),
    ],
    "export_dot": [(openreg.export_dot, [None, 1], TypeError, "expected str, bytes or os.PathLike")],
    "make_graphed_callables": [
        (graphed, [None, 1, "x"], TypeError, "takes a tuple of tensors for each callable"),
        (lambda v: graphed(torch.exp, v), [None, 1, "x", [torch.ones(2)], torch.ones(2)], TypeError, "sample_args"),
        (lambda v: graphed((torch.exp, torch.sin), v), [((),), (1, 2), ((), (), ())], TypeError, "for each callable"),
        (lambda v: graphed(torch.exp, (v,)), [None, 1, "x", [1]], TypeError, "must be tensors"),
        (lambda v: graphed(torch.exp, num_warmup_iters=v), NOT_INTEGERS, TypeError, "num_warmup_iters"),
        (lambda v: graphed(torch.exp, pool=v), NOT_POOLS, TypeError, "not the id of a pool"),
    ],
    "MemPool": [
        (openreg.MemPool, [1.5, "x", 0], TypeError, "a pool's allocator cannot be chosen"),
        (lambda v: openreg.MemPool(None, v), [[], object(), "x"], TypeError, "use_on_oom has the wrong type"),
        (lambda v: openreg.MemPool(None, False, v), [[], object(), "x"], TypeError, "no_split has the wrong type"),
    ],
    "use_mem_pool": [(entered(openreg.use_mem_pool), [None, 1, (0, 1)], TypeError, "expected a MemPool")],
    "memory_snapshot": [
        (openreg.memory_snapshot, [1.5, "x", [], (1,), (1, 2, 3), ("a", 1), (-1, 0)], TypeError, "not the id of a pool")
    ],
    "memory.register_out_of_memory_hook": [
        (memory.register_out_of_memory_hook, [None, 1, "x"], TypeError, "expected a function of device and bytes")
    ],
    "memory._record_memory_history": [
        (memory._record_memory_history, [1.5, "x", True], RuntimeError, "invalid enabled .*expected one of"),
        (lambda v: memory._record_memory_history(context=v), [1.5, "x", "free"], RuntimeError, "invalid context"),
        (lambda v: memory._record_memory_history(stacks=v), [None, "x", "c++"], RuntimeError, "invalid stacks"),
        (
            lambda v: memory._record_memory_history(clear_history=v),
            [None, 1, "x"],
            RuntimeError,
            "invalid clear_history",
        ),
        (
            lambda v: memory._record_memory_history(max_entries=v),
            [None, 1.5, "x"],
            TypeError,
            "max_entries has the wrong",
        ),
        (
            lambda v: memory._record_memory_history(record_pinned_host_memory=v),
            [True, None],
            RuntimeError,
            "invalid record_pinned_host_memory",
        ),
        (lambda v: memory._record_memory_history(record_cuda=v), [False, 1], RuntimeError, "invalid record_cuda"),
        (lambda v: memory._record_memory_history(max_entries=v), [0, -1, 2**70], RuntimeError, "max_entries is out of"),
        (lambda v: memory._record_memory_history(skip_actions=v), [[1], [None]], TypeError, "an action to skip"),
        (
            lambda v: memory._record_memory_history(skip_actions=v),
            [["x"]],
            RuntimeError,
            r"unknown action of the memory history \(got \"x\", expected one of alloc, .*annotate\)",
        ),
    ],
    "memory._allocation_traceback": [
        (memory._allocation_traceback, NOT_INTEGERS, TypeError, "the address is not an int"),
        (memory._allocation_traceback, [-1, 2**64], ValueError, "the address is out of range"),
    ],
    "memory._dump_snapshot": [
        (memory._dump_snapshot, [None, 1.5], TypeError, NO_PATH),
        (memory._dump_snapshot, ["/nowhere/file"], FileNotFoundError, "/nowhere/file"),
    ],
    "memory._save_memory_usage": [(memory._save_memory_usage, [None, 1.5], TypeError, NO_PATH)],
    "memory._save_segment_usage": [(memory._save_segment_usage, [None, 1.5], TypeError, NO_PATH)],
    "memory._set_memory_metadata": [
        (memory._set_memory_metadata, [None, 1, b"x"], TypeError, "expected a str or a dict"),
        (memory._set_memory_metadata, [{"step": object()}], TypeError, "not JSON serializable"),
    ],
    "memory._annotate_tensor": [
        (lambda v: memory._annotate_tensor(v, "x"), [None, 1], TypeError, "expected a torch.Tensor"),
        (lambda v: memory._annotate_tensor(v, "x"), [torch.ones(1)], ValueError, "on another device .*got cpu"),
        (lambda v: memory._annotate_tensor(torch.ones(1), v), [None, {}], TypeError, "expected a str"),
    ],
    "nvtx.mark": [(nvtx.mark, [None, 1, bytearray()], TypeError, "the name of a range .*expected a str")],
    "nvtx.range": [
        (entered(nvtx.range), [None, 1, b"x"], TypeError, "the name of a range .*expected a str"),
        (entered(nvtx.range), ["{}"], IndexError, "index 0 out of range"),
    ],
    "nvtx.range_push": [(nvtx.range_push, [None, 1, bytearray()], TypeError, "the name of a range .*expected a str")],
    "nvtx.range_start": [(nvtx.range_start, [None, 1, bytearray()], TypeError, "the name of a range .*expected a str")],
    "nvtx.range_end": [(nvtx.range_end, [None, 1.5, "x", -1, 2**64], TypeError, "expected a result of range_start")],
}

# Arguments that go to PyTorch's own functions, which check them, and those that nothing depends on.
PYTORCHS = {
    "AcceleratorError": "an exception",
    "OutOfMemoryError": "an exception",
    "UnsynchronizedAccessError": "an exception",
    "amp.GradScaler": "torch.amp.GradScaler's arguments",
    "amp.autocast": "torch.autocast's arguments",
    "amp.custom_bwd": "torch.amp.custom_bwd's argument",
    "amp.custom_fwd": "torch.amp.custom_fwd's arguments",
    "is_bf16_supported": "true whatever is asked",
    "memory._set_allocator_settings": "torch._C._accelerator_setAllocatorSettings' argument",
    "MemPool.snapshot": "segments have no traces",
    **dict.fromkeys(openreg.legacy.TYPES, "PyTorch's legacy constructors"),
}

MODULES = {"": openreg, "amp.": openreg.amp, "memory.": memory, "nvtx.": nvtx, "profiler.": openreg.profiler}


def takes_arguments(function: Any) -> bool:
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        return True
    return bool([name for name in names if name != "self"])


def functions() -> Iterator[tuple[str, Any]]:
    """What users can call with arguments: functions, classes and their methods."""
    for prefix, module in MODULES.items():
        exported = set(getattr(module, "__all__", ()))
        for name, found in vars(module).items():
            as_cudas = name.startswith("_") and hasattr(getattr(torch.cuda, prefix[:-1], torch.cuda), name)
            if not callable(found) or name.startswith("__") or not (name in exported or as_cudas):
                continue
            if takes_arguments(found):
                yield prefix + name, found
            if inspect.isclass(found) and found.__module__.startswith("torch_openreg"):
                for method, body in vars(found).items():
                    if inspect.isfunction(body) and not method.startswith("__") and takes_arguments(body):
                        yield f"{prefix}{name}.{method}", body


def test_each_function_that_takes_an_argument_has_a_row():
    rows = {*DEVICES, *ROWS, *PYTORCHS}
    covered = {id(operator.attrgetter(name)(openreg)) for name in rows}
    assert [name for name, function in functions() if id(function) not in covered] == []


def check(call: Callable[..., Any], value: Any, error: type[Exception], pattern: str) -> None:
    with pytest.raises(error, match=pattern) as raised:
        call(value)
    assert "incompatible function arguments" not in str(raised.value)


@pytest.fixture(autouse=True)
def _the_device_is_as_before() -> Iterator[None]:
    """Nothing that is refused has changed anything."""
    allocated = openreg.memory_allocated()
    stream = openreg.current_stream()
    yield
    assert (openreg.current_device(), openreg.current_stream()) == (0, stream)
    assert openreg.get_per_process_memory_fraction() == 1.0
    if openreg.memory_allocated() > allocated:
        gc.collect()  # the frames of what was raised
    assert openreg.memory_allocated() <= allocated
    assert torch.ones(2, device="openreg").sum().item() == 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", DEVICES)
def test_devices_that_are_none(name):
    call, negative_is_current = DEVICES[name]
    for value in NO_DEVICE:
        check(call, value, ValueError, r"openreg: this is not a device \(got .*, expected an index from 0 to 1")
    for value in OTHER_KINDS:
        check(call, value, ValueError, rf"the device has the wrong type \(got {value}, expected openreg\)")
    negative = NEGATIVE[1:] if name in ONLY_MINUS_ONE else [] if negative_is_current else NEGATIVE
    for value in [*MISSING, *negative]:
        index = value if isinstance(value, int) else torch.device(value).index
        missing = AssertionError if name in ASSERTED else RuntimeError
        if name not in ("ExternalStream", "get_stream_from_external") or index >= 0:
            check(call, value, missing, rf"device index is out of range \(got {index}, expected 0 to 1\)")
    for value in ("", "nonsense", "openreg:-1", "openreg:x"):
        check(call, value, RuntimeError, r"[Dd]evice")


@pytest.mark.parametrize("name", [name for name, (_, negative) in DEVICES.items() if negative])
def test_a_negative_index_is_the_current_device(name):
    call, _ = DEVICES[name]
    for value in NEGATIVE[:1] if name in ONLY_MINUS_ONE else NEGATIVE:
        call(value)


@pytest.mark.parametrize("name", sorted(INDEXED))
def test_a_device_without_an_index_is_refused(name):
    call, _ = DEVICES[name]
    for value in ("openreg", torch.device("openreg")):
        check(call, value, ValueError, r"the device has no index \(got openreg, expected 0 to 1\)")


@pytest.mark.parametrize("name", ROWS)
def test_other_arguments(name):
    for call, values, error, pattern in ROWS[name]:
        for value in values:
            check(call, value, error, pattern)
