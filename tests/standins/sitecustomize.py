"""Loads a torch that was built with CUDA as one without, for the tests of openreg-cuda beside PyPI's builds.

With this folder on PYTHONPATH, and the folder of `generate.py`'s libraries in OPENREG_STANDINS: before torch is
imported, they take the place of its libraries of CUDA (the loader finds them by their names), and then torch._C loses
the names that only a build with CUDA has.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_ONLY_WITH_CUDA = re.compile(
    r"_(cuda_|Cuda|CUDA|CUuuid|nccl_|gds_|StaticCuda|FastCuda|graph_pool_handle$|MemPool$|host_emptyCache$).*"
    r"|_(cudnn|cusparselt|cudart|nvtx)"
    r"|_(broadcast|broadcast_coalesced|broadcast_out|scatter|scatter_out|gather|gather_out)"
    r"|_cudnn_(clear_dropout_state|set_conv_benchmark_empty_cache)"
    r"|_(free_And_Remove_DeleterFn|has_Standard_Deleter|construct_CUDA_Tensor_From_Storage_And_Metadata)"
    r"|_(set_storage_access_error_msg|set_storage_data_ptr_access_error_msg|tensors_data_ptrs_at_indices_equal)"
)
_ONLY_WITH_NCCL = re.compile(
    r"ProcessGroupNCCL.*|NCCL.*|_DEFAULT_PG_NCCL_TIMEOUT|_hash_tensors|_(un)?register_external_nccl_comm"
    r"|_nvshmemx_cumodule_init|_is_nvshmem_available|_dump_nccl_trace.*|_reset_fr_recording_nccl"
    r"|_get_intra_node_comm_usage_counter"
)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in ("torch", "torch._C", "torch.version"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None and spec.origin is not None
        loader: Any = spec.loader
        original, root = loader.exec_module, Path(spec.origin).parent

        def exec_module(module: ModuleType) -> None:
            if name == "torch":
                _load(Path(os.environ["OPENREG_STANDINS"]), root / "lib")
            original(module)
            if name == "torch._C":
                _hide_names(module)
            elif name == "torch.version":
                module.cuda = None  # type: ignore[attr-defined]

        loader.exec_module = exec_module
        return spec


def _load(folder: Path, lib: Path) -> None:
    # CUPTI, which libtorch_cpu needs, first. libtorch_nvshmem is part of libtorch_cuda's stand-in.
    libraries = [lib / "libc10.so", lib / "libtorch_cpu.so", folder / "libc10_cuda.so", folder / "libtorch_cuda.so"]
    for each in (*folder.glob("libcupti.so.*"), *libraries):
        ctypes.CDLL(str(each))


def _hide_names(_C: ModuleType) -> None:
    for name in list(vars(_C)):
        if _ONLY_WITH_CUDA.fullmatch(name):
            delattr(_C, name)
    _C._has_cuda = _C._has_cudnn = _C._has_cusparselt = _C._has_gds = False  # type: ignore[attr-defined]
    for name in ("_cudart", "_nvtx", "_cudnn", "_cusparselt"):
        sys.modules.pop(f"torch._C.{name}", None)
    init = _C._c10d_init

    def _c10d_init() -> Any:
        result = init()
        distributed = sys.modules["torch._C._distributed_c10d"]
        for name in list(vars(distributed)):
            if _ONLY_WITH_NCCL.fullmatch(name):
                delattr(distributed, name)
        return result

    _C._c10d_init = _c10d_init  # type: ignore[attr-defined]


if "OPENREG_STANDINS" in os.environ:
    sys.meta_path.insert(0, _Finder())
