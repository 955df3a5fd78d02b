"""Settings of NVIDIA's libraries: they can be set and read back.

Only the sizes of cuBLAS's workspaces change anything: how much memory products take without computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# PyTorch's defaults: a setting, its name in functions that set it, and in functions that read it.
_DEFAULTS: tuple[tuple[Any, str, str], ...] = (
    (False, "_cuda_tunableop_enable", "_cuda_tunableop_is_enabled"),
    (True, "_cuda_tunableop_tuning_enable", "_cuda_tunableop_tuning_is_enabled"),
    (False, "_cuda_record_untuned_enable", "_cuda_record_untuned_is_enabled"),
    (30, "_cuda_tunableop_set_max_tuning_duration", "_cuda_tunableop_get_max_tuning_duration"),
    (100, "_cuda_tunableop_set_max_tuning_iterations", "_cuda_tunableop_get_max_tuning_iterations"),
    (0, "_cuda_tunableop_set_rotating_buffer_size", "_cuda_tunableop_get_rotating_buffer_size"),
    # Since 2.15.
    (False, "_cuda_tunableop_wildcard_fallback_enable", "_cuda_tunableop_wildcard_fallback_is_enabled"),
    (8, "_cuda_tunableop_set_cublaslt_requested_algo_count", "_cuda_tunableop_get_cublaslt_requested_algo_count"),
    (10, "_cuda_set_cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit"),
    (True, "_cudnn_set_conv_benchmark_empty_cache", "_cuda_get_conv_benchmark_empty_cache"),
)


def settings(_C: Any) -> dict[str, Callable[..., Any]]:
    """The functions by their names in ``torch._C``."""
    values = {reader: default for default, _, reader in _DEFAULTS}
    named = ["tunableop_results.csv", True]

    def setter(reader: str, kind: type) -> Callable[[Any], None]:
        def write(value: Any) -> None:
            values[reader] = kind(value)

        return write

    def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
        named[:] = [str(filename), bool(insert_device_ordinal)]

    def filename() -> str:
        name, by_device = named
        stem, dot, end = str(name).rpartition(".")
        return f"{stem}{torch.cuda.current_device()}{dot}{end}" if by_device and dot else str(name)

    functions: dict[str, Callable[..., Any]] = {}
    for default, writer, reader in _DEFAULTS:
        functions[writer] = setter(reader, type(default))
        functions[reader] = lambda reader=reader: values[reader]
    return {
        **functions,
        **_workspaces(_C, "Cublas", lt=False),
        **_workspaces(_C, "CublasLt", lt=True),
        "_cuda_tunableop_set_filename": set_filename,
        "_cuda_tunableop_get_filename": filename,
        "_cuda_tunableop_read_file": lambda filename=None: False,  # no results are in use
        "_cuda_tunableop_get_results": lambda: (),
        "_cuda_tunableop_clear_all": lambda: None,
        "_cuda_tunableop_push_dynamic_dims_mask": lambda bits: bits,  # its handle
        "_cuda_tunableop_pop_dynamic_dims_mask": lambda handle: None,
        "_cuda_tunableop_get_validators": lambda: (("PT_VERSION", torch.__version__),),
        "_cuda_tunableop_set_numerical_check_tolerances": lambda enable, atol=1e-5, rtol=1e-5: None,
    }


def _workspaces(_C: Any, library: str, lt: bool) -> dict[str, Callable[..., Any]]:
    return {
        f"_cuda_set{library}WorkspaceSize": lambda size: _C.set_blas_workspace_bytes(lt, int(size)),
        f"_cuda_get{library}WorkspaceSize": lambda: _C.blas_workspace_bytes(lt),
        f"_cuda_reset{library}WorkspaceSize": lambda: _C.set_blas_workspace_bytes(lt, None),
    }
