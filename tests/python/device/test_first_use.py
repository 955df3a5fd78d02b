"""The first use of the device in a process, whatever it is: afterwards the device is in use for everyone who asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

STATE = "torch.zeros(16, dtype=torch.uint8)"
RAW = "openreg.caching_allocator_alloc(64)"

# Each public function, called first in a process; a key before ": " tells variants apart. These use the device ...
USES = {
    "init": "openreg.init()",
    "_lazy_init": "openreg._lazy_init()",
    "current_device": "openreg.current_device()",
    "set_device": "openreg.set_device(1)",
    "device": "with openreg.device(1): pass",
    "synchronize: a device": "openreg.synchronize(1)",
    "get_device_properties": "openreg.get_device_properties()",
    "get_device_name": "openreg.get_device_name(1)",
    "get_device_capability": "openreg.get_device_capability()",
    "current_blas_handle": "openreg.current_blas_handle()",
    "current_solver_handle": "openreg.current_solver_handle()",
    "can_device_access_peer": "openreg.can_device_access_peer(0, 1)",
    "current_stream": "openreg.current_stream()",
    "default_stream": "openreg.default_stream(1)",
    "set_stream": "openreg.set_stream(torch.Stream('openreg'))",
    "stream": "with openreg.stream(openreg.Stream()): pass",
    "StreamContext": "with openreg.StreamContext(openreg.Stream()): pass",
    "Stream": "openreg.Stream()",
    "Stream: of an identity": "openreg.Stream(stream_id=0, device_index=1, device_type=20).synchronize()",
    "ExternalStream": "openreg.ExternalStream(torch.Stream('openreg').native_handle)",
    "get_stream_from_external": "openreg.get_stream_from_external(torch.Stream('openreg').native_handle)",
    "Event: recorded": "openreg.Event().record()",
    "_sleep": "openreg._sleep(1)",
    "CUDAGraph": "openreg.CUDAGraph()",
    "graph": "with openreg.graph(openreg.CUDAGraph()): torch.ones(1, device='openreg').add_(1)",
    "make_graphed_callables": "openreg.make_graphed_callables(torch.sin, (torch.ones(2, device='openreg'),))",
    "MemPool": "openreg.MemPool()",
    "use_mem_pool": "with openreg.use_mem_pool(openreg.MemPool()): pass",
    "caching_allocator_alloc": RAW,
    "caching_allocator_delete": f"openreg.caching_allocator_delete({RAW})",
    "reset_device": "openreg.reset_device()",
    "mem_get_info": "openreg.mem_get_info()",
    "device_memory_used": "openreg.device_memory_used()",
    "list_gpu_processes": "openreg.list_gpu_processes()",
    "set_per_process_memory_fraction": "openreg.set_per_process_memory_fraction(1.0)",
    "get_per_process_memory_fraction": "openreg.get_per_process_memory_fraction()",
    "memory.peak": "with openreg.memory.peak(): pass",
    "fits": "with openreg.fits('h100'): pass",
    "memory._record_memory_history": "openreg.memory._record_memory_history(None)",
    "tensor": "torch.ones(1, device='openreg')",
    "tensor: empty": "torch.empty(0, device='openreg')",
    "tensor: moved": "torch.ones(1).openreg()",
    "tensor: random": "torch.rand(2, device='openreg')",
    "FloatTensor": "openreg.FloatTensor(2)",
    "FloatStorage": "openreg.FloatStorage(2)",
    "UntypedStorage": "torch.UntypedStorage(4, device='openreg')",
    "module": "torch.nn.Linear(2, 2).to('openreg')",
    "backward": "torch.ones(2, requires_grad=True, device='openreg').sum().backward()",
    "torch.Stream": "torch.Stream('openreg')",
    "torch.Event: recorded": "torch.Event('openreg').record()",
    "accelerator.current_device_index": "torch.accelerator.current_device_index()",
    "accelerator.set_device_index": "torch.accelerator.set_device_index(1)",
    "accelerator.device_index": "with torch.accelerator.device_index(1): pass",
    "accelerator.current_stream": "torch.accelerator.current_stream(1)",
    "accelerator.set_stream": "torch.accelerator.set_stream(torch.Stream('openreg'))",
    "accelerator.synchronize": "torch.accelerator.synchronize()",
    "accelerator.get_memory_info": "torch.accelerator.get_memory_info(0)",
    "accelerator.get_device_capability": "torch.accelerator.get_device_capability()",
    "torch.set_default_device": "torch.set_default_device('openreg'); torch.ones(1)",
}
# ... and these do not.
DOES_NOT_USE = {
    "executor_pid": "openreg.executor_pid()",
    "nothing": "pass",
    "is_available": "openreg.is_available()",
    "device_count": "openreg.device_count()",
    "is_initialized": "openreg.is_initialized()",
    "_is_in_bad_fork": "openreg._is_in_bad_fork()",
    "device: none": "with openreg.device(None): pass",
    "device_of": "with openreg.device_of(torch.ones(1)): pass",
    "set_device: negative": "openreg.set_device(-1)",
    "synchronize": "openreg.synchronize()",
    "stream: none": "with openreg.stream(None): pass",
    "Event": "openreg.Event()",
    "Event: never recorded": "openreg.Event().synchronize(); assert torch.Event('openreg').query()",
    "is_current_stream_capturing": "openreg.is_current_stream_capturing()",
    "graph_pool_handle": "openreg.graph_pool_handle()",
    "export_dot": "openreg.export_dot('graph.dot')",
    "graphs.register_graph_capture_end_hook": "openreg.graphs.register_graph_capture_end_hook(print).remove()",
    "graphs.register_graph_capture_start_hook": "openreg.graphs.register_graph_capture_start_hook(print).remove()",
    "graphs.register_graph_destroy_hook": "openreg.graphs.register_graph_destroy_hook(print).remove()",
    "graphs.register_graph_instantiate_hook": "openreg.graphs.register_graph_instantiate_hook(print).remove()",
    "graphs.register_graph_replay_end_hook": "openreg.graphs.register_graph_replay_end_hook(print).remove()",
    "graphs.register_graph_replay_start_hook": "openreg.graphs.register_graph_replay_start_hook(print).remove()",
    "manual_seed": "openreg.manual_seed(1)",
    "manual_seed_all": "openreg.manual_seed_all(1)",
    "seed": "openreg.seed()",
    "seed_all": "openreg.seed_all()",
    "initial_seed": "openreg.initial_seed()",
    "get_rng_state": "openreg.get_rng_state(1)",
    "get_rng_state_all": "openreg.get_rng_state_all()",
    "set_rng_state": f"openreg.set_rng_state({STATE})",
    "set_rng_state_all": f"openreg.set_rng_state_all([{STATE}])",
    "_get_rng_state_offset": "openreg._get_rng_state_offset()",
    "_set_rng_state_offset": "openreg._set_rng_state_offset(4)",
    "default_generators": "openreg.default_generators",
    "fork_rng": "with torch.random.fork_rng(devices=[0, 1], device_type='openreg'): pass",
    "torch.manual_seed": "torch.manual_seed(1)",
    "torch.Generator": "torch.Generator('openreg').manual_seed(1).get_state()",
    "empty_cache": "openreg.empty_cache()",
    "ipc_collect": "openreg.ipc_collect()",
    "memory_stats": "openreg.memory_stats()",
    "memory_stats_as_nested_dict": "openreg.memory_stats_as_nested_dict()",
    "memory_summary": "openreg.memory_summary()",
    "memory_snapshot": "openreg.memory_snapshot()",
    "memory_allocated": "openreg.memory_allocated()",
    "memory_reserved": "openreg.memory_reserved()",
    "max_memory_allocated": "openreg.max_memory_allocated()",
    "max_memory_reserved": "openreg.max_memory_reserved()",
    "memory_cached": "openreg.memory_cached()",
    "max_memory_cached": "openreg.max_memory_cached()",
    "reset_max_memory_cached": "openreg.reset_max_memory_cached()",
    "reset_accumulated_memory_stats": "openreg.reset_accumulated_memory_stats()",
    "reset_peak_memory_stats": "openreg.reset_peak_memory_stats()",
    "reset_max_memory_allocated": "openreg.reset_max_memory_allocated()",
    "host_memory_stats": "openreg.host_memory_stats()",
    "host_memory_stats_as_nested_dict": "openreg.host_memory_stats_as_nested_dict()",
    "reset_accumulated_host_memory_stats": "openreg.reset_accumulated_host_memory_stats()",
    "reset_peak_host_memory_stats": "openreg.reset_peak_host_memory_stats()",
    "get_allocator_backend": "openreg.get_allocator_backend()",
    "memory.register_out_of_memory_hook": "openreg.memory.register_out_of_memory_hook(print)",
    "faults.inject": "with openreg.faults.inject('slow@launch:1=1ms'): pass",
    "faults.summary": "openreg.faults.summary()",
    "launch_stats": "openreg.launch_stats()",
    "reset_launch_stats": "openreg.reset_launch_stats()",
    "scheduler_stats": "openreg.scheduler_stats()",
    "get_race_detection_mode": "openreg.get_race_detection_mode()",
    "set_race_detection_mode": "openreg.set_race_detection_mode('off')",
    "assume": "with openreg.assume(): pass",
    "compute_report": "openreg.compute_report()",
    "get_compute_mode": "openreg.get_compute_mode()",
    "set_compute_mode": "openreg.set_compute_mode(True)",
    "fake_world": "with openreg.fake_world(2): pass",
    "get_schedule": "openreg.get_schedule()",
    "set_schedule": "openreg.set_schedule('latest')",
    "get_sync_debug_mode": "openreg.get_sync_debug_mode()",
    "set_sync_debug_mode": "openreg.set_sync_debug_mode('default')",
    "get_amp_supported_dtype": "openreg.get_amp_supported_dtype()",
    "is_bf16_supported": "openreg.is_bf16_supported()",
    "is_tf32_supported": "openreg.is_tf32_supported()",
    "get_arch_list": "openreg.get_arch_list()",
    "get_gencode_flags": "openreg.get_gencode_flags()",
    "temperature": "exec('try: openreg.temperature()\\nexcept RuntimeError: pass')",
    "power_draw": "exec('try: openreg.power_draw()\\nexcept RuntimeError: pass')",
    "clock_rate": "exec('try: openreg.clock_rate()\\nexcept RuntimeError: pass')",
    "utilization": "openreg.utilization()",
    "amp.GradScaler": "openreg.amp.GradScaler()",
    "amp.autocast": "with openreg.amp.autocast(): pass",
    "nvtx.mark": "openreg.nvtx.mark('a')",
    "nvtx.range": "with openreg.nvtx.range('a'): pass",
    "profiler.profile": "with openreg.profiler.profile(): pass",
    "pinned memory": "torch.empty(4).pin_memory()",
    "pinned memory: is_pinned": "torch.empty(4).is_pinned()",
    "pinned memory: made": "torch.empty(4, pin_memory=True)",
    "backward: on the CPU": "torch.ones(2, requires_grad=True).sum().backward()",
    "autocast": "with torch.autocast('openreg'): torch.ones(2, 2) @ torch.ones(2, 2)",
    "get_device_module": "torch.get_device_module('openreg'); torch.get_device_module()",
    "meta": "torch.ones(2, device='meta') + 1",
    "accelerator.Graph": "torch.accelerator.Graph()",
    "accelerator.current_accelerator": "torch.accelerator.current_accelerator(True)",
    "accelerator.device_count": "torch.accelerator.device_count()",
    "accelerator.is_available": "torch.accelerator.is_available()",
    "accelerator.empty_cache": "torch.accelerator.empty_cache()",
    "accelerator.empty_host_cache": "torch.accelerator.empty_host_cache()",
    "accelerator.memory_stats": "torch.accelerator.memory_stats(0)",
    "accelerator.memory_allocated": "torch.accelerator.memory_allocated(0)",
    "accelerator.memory_reserved": "torch.accelerator.memory_reserved(0)",
    "accelerator.max_memory_allocated": "torch.accelerator.max_memory_allocated(0)",
    "accelerator.max_memory_reserved": "torch.accelerator.max_memory_reserved(0)",
    "accelerator.reset_peak_memory_stats": "torch.accelerator.reset_peak_memory_stats(0)",
    "accelerator.reset_accumulated_memory_stats": "torch.accelerator.reset_accumulated_memory_stats(0)",
    "accelerator.synchronize: a device": "torch.accelerator.synchronize(0)",
}
# Names that are no functions, that refuse every call, or that are the same function as another one.
NO_USE = {
    *"""
    AcceleratorError OutOfMemoryError UnsynchronizedAccessError
    amp faults graphs has_half has_magma host_memory legacy machine memory nvtx profiler
    random statistics streams change_current_allocator memory_usage
    accelerator.current_device_idx accelerator.set_device_idx
    """.split(),
    *torch.openreg.legacy.TYPES,
}
ALL = USES | DOES_NOT_USE


@pytest.fixture(scope="module", params=["main thread", pytest.param("another thread", marks=pytest.mark.full)])
def found(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What each use leads to, from processes that are forked one after the other."""
    program = Path(__file__).with_name("first_uses.py")
    uses = [(code, request.param == "another thread") for code in ALL.values()]
    result = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(uses), capture_output=True, text=True, timeout=500
    )
    assert result.returncode == 0, result.stderr
    return dict(zip(ALL, json.loads(result.stdout), strict=True))


def test_the_tables_name_every_public_function():
    names = {key.partition(": ")[0] for key in ALL} | NO_USE
    public = {*torch.openreg.__all__, *(f"accelerator.{name}" for name in torch.accelerator.__all__)}
    assert public - names == set()


@pytest.mark.no_executor("each of 200 processes would start one")
def test_every_first_use_is_told_from_none_by_everyone_who_asks(found):
    wrong = {}
    for name, seen in found.items():
        used = name in USES
        expected = {
            "used": used,
            "_initialized": used,
            "has_statistics": used,
            "has_own_statistics": used,
            "in_bad_fork": used,
            "usable_in_child": not used,
            "waits": [True] * 4,
            "waits_in_thread": [True],
            "computes": True,
        }
        if seen != expected:
            wrong[name] = {key: seen.get(key) for key in {**expected, **seen} if seen.get(key) != expected.get(key)}
    assert wrong == {}
