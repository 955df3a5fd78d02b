"""What the functions of torch.openreg do with unusual arguments: the same as those of torch.cuda.

Each row is a call, what it returns or raises, and the file of PyTorch that decides it or tests it. A "build" is what a
CUDA build of PyTorch 2.14 does on a machine without a GPU. All rows were also run on one GPU (H100, PyTorch 2.11). Its
answers are the same, except for names of later versions, a second device, priorities (0 to -3), nvtx without a tool,
and the differences below. The functions that take a device are in `DEVICES`. Wrong arguments and their messages are the
subject of test_wrong_arguments.py.

Deliberate differences, because torch.cuda hides a mistake: an object that is not a device is a ValueError, not the
current device; another device type is one, too, where torch.cuda looks at the index only; and before the first use
devices are checked as afterwards.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from modules import load

cuda_names = load("scripts/cuda_names.py")
openreg = torch.openreg

STREAMS, MEMORY, RANDOM, GRAPHS = (f"cuda/{name}.py" for name in ("streams", "memory", "random", "graphs"))
DEVICE, UTILS, STORAGE = "cuda/__init__.py", "_utils.py", "storage.py"
FLAGS = "csrc/cuda/Event.cpp"  # reads the arguments as bytes
EVENT, STREAM, LEGACY = "c10/cuda/CUDAEvent.h", "csrc/cuda/Stream.cpp", "csrc/utils/tensor_new.cpp"
COMM, MODULE, BUILD = "csrc/cuda/comm.cpp", "csrc/cuda/Module.cpp", "build"
GENERATOR = "ATen/cuda/CUDAGeneratorImpl.cpp"


ANY = object()  # any value


class raises(NamedTuple):
    kind: type[BaseException]
    text: str = ""


class warns(NamedTuple):
    kind: type[Warning]
    text: str


class Row(NamedTuple):
    call: str
    expected: Any  # a value, `raises` or `warns`
    source: str


def event(index: int = 0, **options: Any) -> torch.Event:
    made = openreg.Event(**{"enable_timing": True, **options})
    made.record(openreg.Stream(index))
    made.synchronize()
    return made


def pending() -> torch.Event:
    made = openreg.Event(enable_timing=True)
    with openreg.Stream():
        openreg._sleep(200_000_000)
        made.record()
    return made


def on(index: int | str, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (6,), device=index if isinstance(index, str) else f"openreg:{index}")


def inside(context: Any) -> tuple[int, int]:
    """The current device and the current stream's number, inside a context."""
    with context:
        return openreg.current_device(), openreg.current_stream().stream_id


def freed(address: int) -> bool:
    openreg.caching_allocator_delete(address)
    return address != 0


def seed_alone(seed: int) -> torch.Tensor:
    return torch.tensor([seed]).view(torch.uint8)


def graphed(*args: Any, **options: Any) -> Any:
    return openreg.make_graphed_callables(torch.exp, *args, **options)


STREAM_1 = openreg.Stream(1)
HELPERS: tuple[Any, ...] = (event, pending, on, inside, freed, seed_alone, graphed, copy, numpy, pickle, torch)
NAMES = {
    **vars(openreg),
    **{helper.__name__: helper for helper in HELPERS},
    "STREAM_1": STREAM_1,
    "comm": torch.nn.parallel.comm,
    "default_generators": openreg.default_generators,
}

ROWS: dict[str, list[Row]] = {
    "Event": [
        Row("Event().query()", True, EVENT),
        Row("Event().synchronize()", None, EVENT),
        Row("Event().wait()", None, EVENT),
        Row("Event().event_id", 0, BUILD),
        Row("event().elapsed_time(pending())", raises(RuntimeError, "must be completed"), EVENT),
        Row("event(0).elapsed_time(event(0)) > 0", True, "test_cuda_multigpu.py"),
        Row("event(1).elapsed_time(event(1)) > 0", True, "test_cuda_multigpu.py"),
        Row("STREAM_1.record_event(event(0))", raises(RuntimeError, "two devices"), EVENT),
        Row("event(0).wait(STREAM_1)", None, EVENT),
        Row("event(1).device.index", 1, EVENT),
        Row("Event(2, 1)", ANY, BUILD),
        Row("Event(False, False, False, True).query()", True, STREAMS),
        Row("Event.from_ipc_handle('cpu', b'x' * 64)", raises(RuntimeError), BUILD),
        Row("pickle.dumps(Event())", raises(TypeError, "cannot pickle"), BUILD),
        Row("Event(255).query()", True, FLAGS),
        Row("Event(False, False, False, 256)", raises(OverflowError), FLAGS),
        Row("Event(blocking=numpy.int64(1)).query()", True, FLAGS),
        Row("event(enable_timing=2).elapsed_time(event(0)) >= 0", True, FLAGS),
    ],
    "Stream": [
        Row("Stream(-1).device_index", 0, STREAMS),
        Row("Stream(None, -5).priority", -1, STREAMS),
        Row("Stream(priority=5).priority", 0, STREAMS),
        Row("Stream.priority_range()", (0, -1), STREAM),
        Row("Stream(stream_ptr=STREAM_1.native_handle, device=1) == STREAM_1", True, STREAMS),
        Row("Stream() == None, Stream() != 1", (False, True), STREAMS),
        Row("current_stream() == default_stream()", True, STREAMS),
        Row("default_stream(0) == default_stream(1)", False, STREAMS),
        Row("hash(default_stream(1)) == hash(current_stream(1))", True, STREAMS),
        Row("pickle.dumps(Stream())", raises(TypeError, "cannot pickle"), BUILD),
        Row("copy.deepcopy(Stream())", raises(TypeError, "cannot pickle"), BUILD),
        Row("STREAM_1.wait_event(event(0))", None, STREAMS),
        Row("STREAM_1.wait_stream(Stream(0))", None, STREAMS),
        Row("STREAM_1.wait_event(torch.Event('cpu'))", None, STREAMS),  # it was never recorded
        Row("on(0).record_stream(STREAM_1)", None, "native/cuda/RecordStream.cu"),
        Row("on(0).record_stream(torch.Stream('cpu'))", raises(RuntimeError), "native/cuda/RecordStream.cu"),
        Row("on(0).record_stream(None)", raises(RuntimeError, "unknown parameter type"), BUILD),
        Row("Stream(priority=True).priority", 0, STREAM),
        Row("Stream(0, numpy.int64(-1)).priority", -1, STREAM),
    ],
    "ExternalStream": [
        Row("ExternalStream(STREAM_1.native_handle, 1) == STREAM_1", True, STREAMS),
        Row("ExternalStream(stream_ptr=STREAM_1.native_handle, device=1, priority=0) == STREAM_1", True, STREAMS),
        Row("ExternalStream(0, 1) == default_stream(1)", True, STREAM),
    ],
    "get_stream_from_external": [
        Row("get_stream_from_external(STREAM_1.native_handle, 1) == STREAM_1", True, DEVICE),
        Row("get_stream_from_external(data_ptr=STREAM_1.native_handle, device='openreg:1').device_index", 1, DEVICE),
    ],
    "StreamContext": [
        Row("inside(StreamContext(STREAM_1)) == (1, STREAM_1.stream_id)", True, DEVICE),
        Row("inside(StreamContext(None))", (0, 0), DEVICE),
        Row("inside(StreamContext(torch.Stream('cpu')))", raises(ValueError, "wrong device type .*got cpu"), DEVICE),
    ],
    "stream": [
        Row("inside(stream(STREAM_1)) == (1, STREAM_1.stream_id)", True, DEVICE),
        Row("inside(stream(None))", (0, 0), DEVICE),
        Row("inside(stream(torch.Stream('cpu')))", raises(ValueError, "wrong device type .*got cpu"), DEVICE),
    ],
    "set_stream": [
        Row("set_stream(None)", None, DEVICE),
        Row("set_stream(torch.Stream('cpu'))", raises(RuntimeError, "(?i)cpu"), STREAM),
        Row("set_stream(STREAM_1), current_device()", (None, 1), STREAM),
    ],
    "device": [
        Row("inside(device(None))", (0, 0), DEVICE),
        Row("inside(device(-5))", (0, 0), DEVICE),
        Row("inside(device('openreg:1'))[0]", 1, DEVICE),
        Row("inside(device(device(1)))[0]", 1, "cuda/_utils.py"),
        Row("device()", raises(TypeError), DEVICE),
    ],
    "device_of": [
        Row("inside(device_of(on(1)))[0]", 1, DEVICE),
        Row("inside(device_of(on(1).untyped_storage()))[0]", 1, DEVICE),
        Row("inside(device_of(torch.ones(1)))", (0, 0), DEVICE),
    ],
    "set_device": [
        Row("set_device(-1), current_device()", (None, 0), BUILD),
        Row("set_device(device='openreg:1'), current_device()", (None, 1), DEVICE),
    ],
    "get_device_properties": [
        Row("get_device_properties(0) == get_device_properties()", True, MODULE),
        Row("get_device_properties(0) == get_device_properties(1)", False, MODULE),
        Row("hash(get_device_properties(1)) == hash(get_device_properties(1))", True, MODULE),
        Row(
            "len(get_device_properties(0).uuid.bytes), len(str(get_device_properties().uuid))",
            (16, 36),
            MODULE,
        ),
        Row("isinstance(get_device_properties(0).uuid, str)", False, MODULE),
        Row("get_device_properties().uuid == get_device_properties(1).uuid", False, MODULE),
        Row("pickle.dumps(get_device_properties(0))", raises(TypeError, "cannot pickle"), MODULE),
        Row("setattr(get_device_properties(0), 'major', 1)", raises(AttributeError), MODULE),
    ],
    "can_device_access_peer": [
        Row("can_device_access_peer(0, 0)", False, "cudaDeviceCanAccessPeer"),
        Row("can_device_access_peer(None, 'openreg:1')", True, DEVICE),
    ],
    "current_blas_handle": [
        Row("isinstance(current_blas_handle(), int)", True, DEVICE),
        Row("current_blas_handle() == current_blas_handle()", True, DEVICE),
        Row("current_blas_handle(0)", raises(TypeError), DEVICE),
    ],
    "current_solver_handle": [
        Row("isinstance(current_solver_handle(), int)", True, DEVICE),
        Row("current_solver_handle() == current_solver_handle()", True, DEVICE),
        Row("current_solver_handle(0)", raises(TypeError), DEVICE),
    ],
    "is_bf16_supported": [
        Row("is_bf16_supported(False), is_bf16_supported(including_emulation=True)", (True, True), DEVICE),
        Row("is_bf16_supported(None)", True, DEVICE),
        Row("is_bf16_supported(0, 0)", raises(TypeError), DEVICE),
    ],
    "set_sync_debug_mode": [
        Row("set_sync_debug_mode('warn'), get_sync_debug_mode()", (None, 1), DEVICE),
    ],
    "manual_seed": [
        Row("manual_seed(2.9), initial_seed()", (None, 2), RANDOM),
        Row("manual_seed('3'), initial_seed()", (None, 3), RANDOM),
        Row("manual_seed(numpy.int64(4)), initial_seed()", (None, 4), RANDOM),
        Row("manual_seed(torch.tensor(5)), initial_seed()", (None, 5), RANDOM),
        Row("manual_seed(-1), initial_seed()", (None, 2**64 - 1), "test_torch.py: test_manual_seed"),
    ],
    "manual_seed_all": [
        Row("manual_seed_all(True), initial_seed()", (None, 1), RANDOM),
    ],
    "set_rng_state": [
        Row("set_rng_state(seed_alone(7)), initial_seed(), get_rng_state()[8].item()", (None, 7, 0), GENERATOR),
        Row("set_rng_state(get_rng_state(1), 0)", None, RANDOM),
    ],
    "set_rng_state_all": [
        Row("set_rng_state_all([])", None, RANDOM),
        Row("set_rng_state_all(iter(get_rng_state_all()))", None, RANDOM),
        Row("set_rng_state_all(get_rng_state_all()[:1])", None, RANDOM),
        Row("set_rng_state_all(get_rng_state())", raises(RuntimeError, "wrong size"), RANDOM),
    ],
    "get_rng_state": [
        Row("get_rng_state('openreg:1').device.type", "cpu", RANDOM),
        Row("get_rng_state(device=torch.device('openreg')).dtype", torch.uint8, RANDOM),
        Row("get_rng_state().equal(get_rng_state(0)), get_rng_state() is get_rng_state()", (True, False), RANDOM),
    ],
    "set_per_process_memory_fraction": [
        Row("set_per_process_memory_fraction(numpy.float64(1))", None, MEMORY),
    ],
    "caching_allocator_alloc": [
        Row("caching_allocator_alloc(0)", 0, "CUDACachingAllocator.cpp"),
        Row("freed(caching_allocator_alloc(numpy.int64(8)))", True, MEMORY),
        Row("freed(caching_allocator_alloc(8, stream=0))", True, MEMORY),
        Row("freed(caching_allocator_alloc(8, 1, STREAM_1.native_handle))", True, MEMORY),
        Row("freed(caching_allocator_alloc(8, 1, STREAM_1))", True, MEMORY),
    ],
    "caching_allocator_delete": [
        Row("caching_allocator_delete(0)", None, "CUDACachingAllocator.cpp"),
        Row(
            "[freed(a) for a in [caching_allocator_alloc(8)] * 2]",
            raises(RuntimeError, "freed already"),
            "CUDACachingAllocator.cpp",
        ),
    ],
    "memory_cached": [
        Row("memory_cached()", warns(FutureWarning, "renamed to `memory_reserved`"), MEMORY),
        Row("memory_cached() == memory_reserved()", True, MEMORY),
    ],
    "max_memory_cached": [
        Row("max_memory_cached('openreg:1')", warns(FutureWarning, "max_memory_reserved"), MEMORY),
        Row("max_memory_cached(0) == max_memory_reserved(0)", True, MEMORY),
    ],
    "reset_max_memory_cached": [
        Row("reset_max_memory_cached()", warns(FutureWarning, "all peaks"), MEMORY),
        Row("reset_max_memory_cached('openreg:1')", warns(FutureWarning, "all peaks"), MEMORY),
    ],
    "reset_max_memory_allocated": [
        Row("reset_max_memory_allocated(1)", warns(FutureWarning, "all peaks"), MEMORY),
        Row("reset_max_memory_allocated(device=None)", warns(FutureWarning, "all peaks"), MEMORY),
    ],
    "memory_summary": [
        Row("len(memory_summary(abbreviated=True)) < len(memory_summary(0, False))", True, MEMORY),
        Row("memory_summary(abbreviated=None) == memory_summary(None, 0)", True, MEMORY),
    ],
    "memory_snapshot": [
        Row("memory_snapshot(MemPool().id, False)", [], MEMORY),
        Row("memory_snapshot(mempool_id=None, include_traces=0)", raises(RuntimeError, "must be a boolean"), MODULE),
        Row("len(memory_snapshot(None)) == len(memory_snapshot())", True, MEMORY),
    ],
    "MemPool": [
        Row("MemPool(None, 1, 0).id[0]", 0, BUILD),
        Row("MemPool().use_count()", 1, "test_cuda.py: test_mempool_id"),
        Row("MemPool(None, None, None).id[0]", 0, "csrc/cuda/MemPool.cpp"),
        Row("MemPool(None, 1.5).id[0]", 0, "csrc/cuda/MemPool.cpp"),
    ],
    "use_mem_pool": [
        Row("inside(use_mem_pool(MemPool(), 0))", (0, 0), MEMORY),
        Row("inside(use_mem_pool(MemPool(), device='openreg:1'))", (0, 0), MEMORY),
    ],
    "change_current_allocator": [
        Row("change_current_allocator()", raises(TypeError), MEMORY),
    ],
    "CUDAGraph": [
        Row("CUDAGraph(1)", ANY, "csrc/cuda/Graph.cpp"),
        Row("CUDAGraph().replay()", raises(RuntimeError, "without a preceding successful capture"), "CUDAGraph.cpp"),
        Row("CUDAGraph().pool()", raises(RuntimeError), "CUDAGraph.cpp"),
        Row("CUDAGraph().reset()", None, "CUDAGraph.cpp"),
        Row("CUDAGraph(keep_graph=True).instantiate()", raises(RuntimeError), "CUDAGraph.cpp"),
        Row("CUDAGraph(None).reset()", None, "csrc/cuda/Graph.cpp"),
        Row("CUDAGraph(numpy.bool_(True)).reset()", None, "csrc/cuda/Graph.cpp"),
    ],
    "graph": [
        Row("inside(graph(CUDAGraph(), pool=graph_pool_handle()))[0]", 0, GRAPHS),
        Row("inside(graph(CUDAGraph(), pool=CUDAGraph().pool))", raises(TypeError), "csrc/cuda/Graph.cpp"),
    ],
    "export_dot": [
        Row("callable(export_dot('graph.dot'))", True, GRAPHS),
        Row("callable(export_dot('graph.dot', verbose=False))", True, GRAPHS),
        Row("export_dot('graph.dot', False)", raises(TypeError), GRAPHS),
        Row("export_dot()", raises(TypeError), GRAPHS),
    ],
    "make_graphed_callables": [
        Row("graphed((on(0),))(on(0)).shape", (6,), GRAPHS),
        Row("graphed(([on(0)],), num_warmup_iters=0)", raises(TypeError), GRAPHS),
        Row("graphed((on(0),), allow_unused_input=None)(on(0)).shape", (6,), GRAPHS),
    ],
    "amp.autocast": [
        Row("inside(amp.autocast(False, torch.float16, False))", (0, 0), "cuda/amp/autocast_mode.py"),
        # PyTorch's rule for all devices but CUDA, which takes this dtype without a word.
        Row("amp.autocast(dtype=torch.float64)", warns(UserWarning, "not supported"), "amp/autocast_mode.py"),
        Row("inside(amp.autocast('x'))", raises(TypeError), "amp/autocast_mode.py"),
        Row("inside(amp.autocast(cache_enabled=None))", (0, 0), "amp/autocast_mode.py"),
    ],
    "amp.GradScaler": [
        Row("amp.GradScaler(2.0).get_scale()", 2, "cuda/amp/grad_scaler.py"),
        Row("amp.GradScaler(enabled=False).is_enabled()", False, "cuda/amp/grad_scaler.py"),
        Row("amp.GradScaler(growth_factor=1.0)", raises(AssertionError, "must be > 1.0"), "amp/grad_scaler.py"),
        Row("amp.GradScaler(enabled=None).is_enabled()", None, "amp/grad_scaler.py"),
    ],
    "amp.custom_fwd": [
        Row("amp.custom_fwd(cast_inputs=torch.float16)(len)([1])", raises(AttributeError), "amp/autocast_mode.py"),
        Row("callable(amp.custom_fwd())", True, "amp/autocast_mode.py"),
        Row("callable(amp.custom_fwd(fwd=None, cast_inputs=None))", True, "amp/autocast_mode.py"),
    ],
    "amp.custom_bwd": [
        Row("amp.custom_bwd()", raises(TypeError), "amp/autocast_mode.py"),
        Row("callable(amp.custom_bwd(bwd=len))", True, "amp/autocast_mode.py"),
        Row("amp.custom_bwd(len)([1])", raises(AttributeError, "_fwd_used_autocast"), "amp/autocast_mode.py"),
    ],
    "amp.amp_definitely_not_available": [
        Row("amp.amp_definitely_not_available()", False, "cuda/amp/common.py"),
        Row("amp.amp_definitely_not_available(1)", raises(TypeError), "cuda/amp/common.py"),
    ],
    "comm.broadcast": [
        Row("comm.broadcast(torch.ones(6), ['openreg:1', 0])[1].device.index", 0, COMM),
        Row("comm.broadcast(on(0))", raises(RuntimeError, "Exactly one of"), "nn/parallel/comm.py"),
    ],
    "comm.broadcast_coalesced": [
        Row("comm.broadcast_coalesced([on(0)], [0, 1], buffer_size=0)[1][0].device.index", 1, COMM),
        Row("comm.broadcast_coalesced([on('cpu')], [0])", raises(RuntimeError, "devices.0."), COMM),
        Row("comm.broadcast_coalesced([], [0, 1])", [[], []], COMM),
        Row("comm.broadcast_coalesced([on(0)], [0, 1], 1.5)", raises(TypeError), "csrc/cuda/python_comm.cpp"),
        Row("comm.broadcast_coalesced([on(0)], [0, 1], -1)", raises(TypeError), "csrc/cuda/python_comm.cpp"),
    ],
    "comm.reduce_add": [
        Row("comm.reduce_add([on(0), on('cpu')])", raises(AssertionError), "nn/parallel/comm.py"),
        Row("comm.reduce_add([on(0)], 1)", raises(RuntimeError), "nn/parallel/comm.py"),
        Row("comm.reduce_add([on(0), on(1, 5)])", raises(ValueError, "invalid size"), "nn/parallel/comm.py"),
    ],
    "comm.reduce_add_coalesced": [
        Row("comm.reduce_add_coalesced([[on(0)], [on(1)]], 1)[0].device.index", 1, "nn/parallel/comm.py"),
        Row("comm.reduce_add_coalesced([[on(0)], [on('cpu')]])", raises(AssertionError), "nn/parallel/comm.py"),
        Row("comm.reduce_add_coalesced([[on(0)], []])", raises(ValueError), "nn/parallel/comm.py"),
    ],
    "comm.scatter": [
        Row("comm.scatter(on(0), out=[])", raises(RuntimeError), COMM),
    ],
    "comm.gather": [
        Row("comm.gather([on(0), on(1)], out=on('cpu', 12)).device.type", "cpu", COMM),
        Row("comm.gather([on(0), on(1)], destination='cpu').device.type", "cpu", "nn/parallel/comm.py"),
    ],
    "nvtx.range_push": [
        Row("nvtx.range_push('a'), nvtx.range_pop(), nvtx.range_pop()", (0, 0, -1), "cuda/nvtx.py"),
        Row("nvtx.range_push(b'a'), nvtx.range_pop()", (0, 0), "csrc/cuda/shared/nvtx.cpp"),
        Row("nvtx.range_push('a', 1)", raises(TypeError), "cuda/nvtx.py"),
    ],
    "nvtx.range_end": [
        Row("nvtx.range_end(range_id=2**64 - 1)", None, "csrc/cuda/shared/nvtx.cpp"),
    ],
    "nvtx.range_start": [
        Row("nvtx.range_end(nvtx.range_start('a'))", None, "cuda/nvtx.py"),
        Row("isinstance(nvtx.range_start(msg=b'a'), int)", True, "csrc/cuda/shared/nvtx.cpp"),
    ],
    "nvtx.range": [
        Row("inside(nvtx.range('{} {b}', 1, b=2))", (0, 0), "cuda/nvtx.py"),
        Row("inside(nvtx.range('{}'))", raises(IndexError), "cuda/nvtx.py"),
        Row("inside(nvtx.range('{b}'))", raises(KeyError), "cuda/nvtx.py"),
    ],
    "nvtx.mark": [
        Row("nvtx.mark(msg='a')", None, "cuda/nvtx.py"),
        Row("nvtx.mark(b'a')", None, "csrc/cuda/shared/nvtx.cpp"),
    ],
    "FloatTensor": [
        Row("FloatTensor([1, 2], device=torch.device('openreg')).tolist()", [1, 2], LEGACY),
        Row("FloatTensor(2.5)", raises(TypeError), BUILD),
        Row(
            "FloatTensor.dtype, FloatTensor.layout, FloatTensor.is_sparse", (torch.float32, torch.strided, False), BUILD
        ),
        Row("isinstance(on(1), FloatTensor), isinstance(torch.ones(1), FloatTensor)", (True, False), LEGACY),
        Row("torch.ones(2).type('torch.openreg.HalfTensor').type()", "torch.openreg.HalfTensor", LEGACY),
        Row("on(1).type(HalfTensor).device.index", 1, DEVICE),
        Row("torch.ones(2).type('torch.openreg.NoTensor')", raises(ValueError, "invalid type"), LEGACY),
    ],
    "FloatStorage": [
        Row("FloatStorage(2, device='openreg:1')", raises(RuntimeError, "cannot be specified"), STORAGE),
        Row("FloatStorage([1, 2]).tolist()", [1, 2], STORAGE),
        Row("torch.UntypedStorage(2).openreg('cpu')", raises(RuntimeError, "must be openreg"), STORAGE),
    ],
    "has_half": [
        Row("has_half", True, BUILD),
        Row("type(has_half)", bool, BUILD),
    ],
    "default_generators": [
        Row("len(default_generators) == device_count()", True, DEVICE),
        Row("default_generators[-1].device.index", 1, DEVICE),
        Row("default_generators[2]", raises(IndexError), DEVICE),
    ],
    "get_arch_list": [
        Row("get_arch_list()", [], "cuda/__init__.py: no kernels are compiled for it"),
        Row("get_arch_list(0)", raises(TypeError), DEVICE),
    ],
    "get_gencode_flags": [
        Row("get_gencode_flags()", "", DEVICE),
        Row("get_gencode_flags(0)", raises(TypeError), DEVICE),
    ],
}

# Functions of a device. What they refuse, and what a negative index means, is in test_wrong_arguments.py.
DEVICES = (
    *("Stream", "clock_rate", "current_stream", "default_stream", "device", "device_memory_used"),
    *("get_device_capability", "get_device_name", "get_device_properties", "get_per_process_memory_fraction"),
    *("get_rng_state", "list_gpu_processes", "max_memory_allocated", "max_memory_reserved", "mem_get_info"),
    *("memory_allocated", "memory_reserved", "memory_stats", "memory_stats_as_nested_dict", "memory_summary"),
    *("reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device", "synchronize", "utilization"),
)
INDEXED = ("get_per_process_memory_fraction", "set_device")
# What the machine may not report, and what takes no argument.
MAY_FAIL = {"clock_rate", "memory_usage", "power_draw", "temperature"}


@pytest.fixture(autouse=True)
def _everything_is_as_before() -> Iterator[None]:
    states = openreg.get_rng_state_all()
    yield
    openreg.set_rng_state_all(states)
    openreg.set_sync_debug_mode(0)
    openreg.set_device(0)
    openreg.synchronize()


UNFINISHED = pytest.mark.needs_engines("elapsed_time queries the event, which would run the work before it")


@pytest.mark.filterwarnings(
    "ignore:TypedStorage is deprecated",
    "ignore:openreg. the captured graph is empty",
    "ignore::FutureWarning",
    "ignore:The torch.openreg..DtypeTensor",
)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.call, marks=UNFINISHED if "pending()" in row.call else ())
        for rows in ROWS.values()
        for row in rows
    ],
)
def test_a_call_does_what_torch_cuda_s_does(row):
    def call() -> Any:
        return eval(row.call, dict(NAMES))

    if isinstance(row.expected, raises):
        with pytest.raises(row.expected.kind, match=row.expected.text or None):
            call()
    elif isinstance(row.expected, warns):
        with pytest.warns(row.expected.kind, match=row.expected.text):
            call()
    else:
        result = call()
        assert row.expected is ANY or result == row.expected


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_is_spelled_as_in_torch_cuda(name):
    function = getattr(openreg, name)
    without_index = () if name in INDEXED else ("openreg", torch.device("openreg"))
    for spelling in (0, 1, True, "openreg:1", torch.device("openreg", 1), openreg.device(1), *without_index):
        try:
            function(spelling)
        except RuntimeError as error:
            assert name in MAY_FAIL and "this machine does not report" in str(error)
        openreg.set_device(0)


def test_a_spelling_selects_the_device():
    with openreg.device(1):
        for spelling in (None, "openreg", torch.device("openreg"), True, openreg.device(1)):
            assert openreg.get_device_properties(spelling) is openreg.get_device_properties(1)
            assert openreg.current_stream(spelling).device_index == 1


def test_each_name_has_a_row():
    """Of torch.cuda's public names that are called with arguments; those without are called with one."""
    missing = []
    for part in ("", "amp", "comm", "nvtx"):
        module = cuda_names.module_of(part)
        for name in cuda_names.public_names(importlib.import_module(f"torch.cuda.{part}".rstrip("."))):
            found, full = getattr(module, name, None), f"{part}.{name}".lstrip(".")
            if not callable(found) or full.endswith(("Tensor", "Storage")):
                continue
            try:
                takes_none = not inspect.signature(found).parameters
            except ValueError:
                takes_none = False
            if takes_none:
                with pytest.raises(TypeError, match="positional argument"):
                    found(1)
            elif full not in ROWS and full not in DEVICES and full not in MAY_FAIL:
                missing.append(full)
    assert missing == []
