"""The names of ``torch._C`` that a build with CUDA has and that have no meaning on a device without NVIDIA's libraries.

PyTorch's Python code can reach each of them. Those of `REFUSED` raise an error that names what is missing. PyTorch
looks for those of `PROBED` before it uses them, and has a branch for builds that lack them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_ALLOCATORS = "another allocator cannot replace the device's"
NVLINK = "memory shared between GPUs by NCCL or NVSHMEM is not emulated"
SOURCES = "programs in CUDA C++ or PTX cannot be compiled or run on the CPU"

REFUSED = {
    "_cuda_CUDAAllocator": _ALLOCATORS,
    "_cuda_customAllocator": _ALLOCATORS,
    "_cuda_changeCurrentAllocator": _ALLOCATORS,
    "_cuda_getAllocator": _ALLOCATORS,
    "_cuda_cudaHostAllocator": "the allocator of pinned memory has no address that C++ code could use",
    "_cuda_beginAllocateToPool": "a pool is used by one thread; use torch.cuda.use_mem_pool",
    "_cuda_beginAllocateCurrentStreamToPool": "a pool is used by one thread; use torch.cuda.use_mem_pool",
    "_cuda_jiterator_compile_and_launch_kernel": SOURCES,
    "_StaticCudaLauncher": SOURCES,
    "_cuda_record_memory_history_legacy": "the old arguments are not supported; use enabled='all'",
    "_cuda_annotateMemory": "the memory history has no annotations; use torch.cuda.memory._set_memory_metadata",
    "_nccl_init_rank": "NCCL's communicators are not emulated; use torch.distributed with the backend nccl",
}

PROBED = {
    "_CUDAGreenContext": "torch.cuda.green_contexts raises without it",
    "_FastCudaLauncher": "Inductor launches Triton's kernels without it",
    "_cuda_getHipblasltVersion": "called in builds for ROCm only",
    "_cudnn": "torch.backends.cudnn reports that cuDNN is not available",
    "_cusparselt": "torch.backends.cusparselt reports that it is not available",
}


def refusals() -> dict[str, Callable[..., NoReturn]]:
    """A function for each name of `REFUSED`."""
    return {name: refusal(f"torch._C.{name}", reason) for name, reason in REFUSED.items()}


def refusal(name: str, reason: str, needs: str = "a GPU") -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError: `name` needs `needs`, with the reason."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"openreg: {name} needs {needs}: {reason}")

    refuse.__name__ = name.rpartition(".")[2]
    return refuse
