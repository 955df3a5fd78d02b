"""Each name of torch._C that PyTorch's Python code can reach with CUDA works here, or says what is missing."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
import torch

from openreg_cuda import _unsupported

ROOT = Path(torch.__file__).parent
# Of other devices, and of other kinds of builds.
OTHERS = re.compile(r"_?(xpu|mps|mtia|_?Static?Xpu|XPU)", re.I)
# For the checker of types only: no build has them.
TYPES = {"CompiledFunction", "IValue", "JitType", "_cuda_tunableop_get_rotation_buffer_size"}
# Names of some versions of torch only.
OF_VERSIONS = {"_CUDAGreenContext": "before 2.15", "_cuda_annotateMemory": "since 2.15"}


def is_torch_c(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch._C", "_C")


@functools.cache
def reachable_names() -> set[str]:
    """The names of torch._C in PyTorch's Python code, and those for CUDA in its stub."""
    names: set[str] = set()
    for source in ROOT.rglob("*.py"):
        text = source.read_text(errors="replace")
        if "_C" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and is_torch_c(node.value):
                names.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and node.module == "torch._C":
                names.update(each.name for each in node.names)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr", "_dummy_type"):
                names.update(each.value for each in node.args if isinstance(each, ast.Constant) and is_name(each.value))
    stub = (ROOT / "_C/__init__.pyi").read_text()
    names.update(re.findall(r"^(?:def|class) (_(?:cuda|CUDA|Cuda|nccl|cudnn|cudart)\w*)", stub, re.M))
    return {name for name in names if not OTHERS.match(name) and name not in TYPES}


def is_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"_(cuda|CUDA|Cuda|nccl|cudnn|cudart)\w+", value) is not None


def is_used(name: str) -> bool:
    return name in reachable_names() or name in OF_VERSIONS


def test_each_name_is_there_or_is_probed() -> None:
    names = reachable_names() - {"*"}
    assert len(names) > 500
    missing = sorted(name for name in names if not hasattr(torch._C, name) and name not in _unsupported.PROBED)
    assert not missing, missing


@pytest.mark.parametrize("name", _unsupported.PROBED)
def test_a_name_that_is_probed_is_not_there(name: str) -> None:
    assert not hasattr(torch._C, name) and is_used(name)


@pytest.mark.parametrize("name", _unsupported.REFUSED)
def test_a_name_without_a_meaning_raises_a_sentence(name: str) -> None:
    assert is_used(name)
    with pytest.raises(NotImplementedError, match=f"^openreg: torch._C.{name} needs a GPU: .{{20}}"):
        getattr(torch._C, name)()


def test_no_class_is_a_dummy() -> None:
    # PyTorch puts classes that raise a sentence of its own where a build has none.
    names = [name for name in reachable_names() if isinstance(getattr(torch._C, name, None), type)]
    dummies = [name for name in names if "err_fn" in getattr(getattr(torch._C, name).__init__, "__qualname__", "")]
    assert names and not dummies, dummies


def test_settings_can_be_read_back() -> None:
    tunable = torch.cuda.tunable
    assert not tunable.is_enabled() and tunable.tuning_is_enabled() and not tunable.record_untuned_is_enabled()
    tunable.enable()
    tunable.set_max_tuning_duration(7)
    tunable.set_filename("found.csv")
    try:
        assert tunable.is_enabled() and tunable.get_max_tuning_duration() == 7
        assert tunable.get_filename() == "found.csv" and tunable.get_results() == ()
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        assert not tunable.read_file()
    finally:
        tunable.enable(False)
        tunable.set_max_tuning_duration(30)
        tunable.set_filename("tunableop_results.csv", insert_device_ordinal=True)
    assert tunable.get_filename() == "tunableop_results0.csv"
    if hasattr(tunable, "dynamic_dims_mask"):  # since 2.15
        with tunable.dynamic_dims_mask(M=True):
            tunable.wildcard_fallback_enable()
            assert tunable.wildcard_fallback_is_enabled()
        tunable.wildcard_fallback_enable(False)
        assert tunable.get_cublaslt_requested_algo_count() == 8
    limit = torch.backends.cudnn.benchmark_limit
    torch._C._cuda_set_cudnn_benchmark_limit(3)
    assert torch._C._cuda_get_cudnn_benchmark_limit() == 3
    torch._C._cuda_set_cudnn_benchmark_limit(10)
    assert limit in (None, 10)
    torch._C._cuda_setCublasWorkspaceSize(1 << 20)
    assert torch._C._cuda_getCublasWorkspaceSize() == 1 << 20
    torch._C._cuda_resetCublasWorkspaceSize()
    assert torch._C._cuda_getCublasWorkspaceSize() > 1 << 20


def test_memory_is_reached_by_the_names_of_torch_c() -> None:
    torch._C._cuda_setMemoryFraction(0.5, 0)
    assert torch._C._cuda_getMemoryFraction(0) == torch.cuda.get_per_process_memory_fraction(0) == 0.5
    torch._C._cuda_setMemoryFraction(1.0, 0)
    torch._C._cuda_setMemoryMetadata("step 3")
    assert torch._C._cuda_getMemoryMetadata() == "step 3"
    torch._C._cuda_setMemoryMetadata("")
    torch._C._cuda_record_memory_history("all", "all", "python", 1000, True, False, False, [])
    x = torch.ones(3, device="cuda")
    assert torch._C._cuda_allocationTraceback(x.data_ptr())
    torch._C._cuda_record_memory_history(None, None, "python", 1000, True, False, False, [])
    pinned = torch.ones(3).pin_memory()
    assert torch._C._cuda_hostMemoryStats()["active_requests"]["current"] >= 1
    del pinned
    torch._C._host_emptyCache()
    torch.cuda.memory.caching_allocator_enable(True)
    assert torch._C._cuda_cudaCachingAllocator_is_enabled()
    with pytest.raises(NotImplementedError, match="cannot be disabled"):
        torch._C._cuda_cudaCachingAllocator_enable(False)


def test_a_thread_allocates_in_a_pool() -> None:
    pool = torch.cuda.MemPool()
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool.id)
    x = torch.ones(4, device="cuda")
    torch._C._cuda_endAllocateToPool(0, pool.id)
    torch._C._cuda_releasePool(0, pool.id)
    (segment,) = pool.snapshot()
    assert segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"]
    with pytest.raises(RuntimeError, match="the pool is not in use"):
        torch._C._cuda_endAllocateToPool(0, pool.id)


def test_addresses_are_compared() -> None:
    x = torch.ones(2, device="cuda")
    assert torch._C._tensors_data_ptrs_at_indices_equal([x, 5], [x.data_ptr(), 5], [0, 1])
    assert torch._C._tensors_data_ptrs_at_indices_equal([x, 5], [None, 6], [0])
    assert not torch._C._tensors_data_ptrs_at_indices_equal([x], [x.data_ptr() + 4], [0])


def test_ranges_are_pushed_by_the_extension_module() -> None:
    from torch._C import _nvtx

    assert _nvtx.rangePushA("a") == 0 and _nvtx.rangePop() == 0


def test_kernels_of_a_gpu_are_refused() -> None:
    double = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return 2 * x; }")
    with pytest.raises(NotImplementedError, match="CUDA C"):
        double(torch.ones(2, device="cuda"))
    with pytest.raises(NotImplementedError, match="CUDA C"):
        torch.cuda._compile_kernel("__global__ void f() {}", "f")
    with pytest.raises(NotImplementedError, match="another allocator"):
        torch.cuda.memory._get_current_allocator()


class TestCollectives:
    """torch.cuda.nccl"""

    def tensors(self, *values: list[float]) -> list[torch.Tensor]:
        return [torch.tensor(value, device=f"cuda:{i}") for i, value in enumerate(values)]

    def test_the_version_is_reported(self) -> None:
        assert torch.cuda.nccl.version() == (2, 27, 0)
        assert len(torch.cuda.nccl.unique_id()) == 128
        with pytest.raises(NotImplementedError, match="_nccl_init_rank needs a GPU"):
            torch.cuda.nccl.init_rank(1, torch.cuda.nccl.unique_id(), 0)

    @pytest.mark.parametrize(("op", "expected"), [(0, [4, 6]), (1, [3, 8]), (2, [3, 4]), (3, [1, 2]), (4, [2, 3])])
    def test_all_reduce(self, op: int, expected: list[float]) -> None:
        x = self.tensors([1.0, 2.0], [3.0, 4.0])
        assert torch.cuda.nccl.is_available(x)
        torch.cuda.nccl.all_reduce(x, op=op)
        assert [each.tolist() for each in x] == [expected, expected]

    def test_the_others_move_parts(self) -> None:
        x = self.tensors([1.0, 2.0], [3.0, 4.0])
        out = torch.zeros(2, device="cuda:1")
        torch.cuda.nccl.reduce(x, out, root=1)
        assert out.tolist() == [4, 6]
        gathered = self.tensors([0.0] * 4, [0.0] * 4)
        torch.cuda.nccl.all_gather(x, gathered)
        assert [each.tolist() for each in gathered] == [[1, 2, 3, 4]] * 2
        scattered = self.tensors([0.0], [0.0])
        torch.cuda.nccl.reduce_scatter(x, scattered)
        assert [each.tolist() for each in scattered] == [[4], [6]]
        torch.cuda.nccl.broadcast(x, root=1)
        assert x[0].tolist() == [3, 4]

    def test_they_run_on_the_given_streams(self) -> None:
        x = self.tensors([1.0], [2.0])
        streams = [torch.cuda.Stream(device) for device in range(2)]
        torch.cuda.synchronize(0)
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(50_000_000)
        torch.cuda.nccl.all_reduce(x, streams=streams)
        assert not streams[0].query()
        assert torch.cuda.current_device() == 0
        torch.cuda.current_stream().wait_stream(streams[0])
        assert x[0].item() == 3

    def test_wrong_arguments_are_reported(self) -> None:
        x = torch.ones(1, device="cuda:0")
        with pytest.raises(RuntimeError, match="different CUDA devices"):
            torch.cuda.nccl.all_reduce([x, x])
        with pytest.raises(RuntimeError, match="unknown reduction"):
            torch.cuda.nccl.all_reduce([x], op=9)


def test_handles_of_memory_are_refused_with_the_way_out() -> None:
    with pytest.raises(RuntimeError, match="_share_cuda_: only available on CUDA"):
        torch.ones(2).untyped_storage()._share_cuda_()
    calls = (
        torch.ones(2, device="cuda").untyped_storage()._share_cuda_,
        lambda: torch.UntypedStorage._new_shared_cuda(0, b"", 1, 0, b"", 0, b"", True),
        lambda: torch.UntypedStorage._release_ipc_counter_cuda(b"", 0),
    )
    for call in calls:
        with pytest.raises(NotImplementedError, match=r"CUDA IPC handles are not emulated; .*torch\.multiprocessing"):
            call()


def test_a_draw_into_another_device_is_refused_as_any_operator_refuses_it() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.multinomial(torch.ones(3, device="cuda"), 1, out=torch.empty(1, dtype=torch.int64))
