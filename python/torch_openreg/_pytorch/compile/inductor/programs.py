"""The functions that generated programs import."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import LOCK_TIMEOUT, CppCodeCache, LambdaFuture, _get_cpp_prefix_header, get_lock_dir
from torch._inductor.utils import clear_on_fresh_cache
from torch.utils._filelock import FileLock

from .... import _C
from ....openreg import current_stream
from ..build_files import is_whole
from .sources import ENTRY

Launcher = Callable[..., None]

empty_strided: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype, int], torch.Tensor] = _C.empty_strided
"""Uninitialised memory: sizes, strides, dtype and the device's index."""


@clear_on_fresh_cache
class _Libraries(CppCodeCache):
    """The libraries of kernels, compiled once for each source with the same flags as the CPU's kernels."""

    cache: dict[str, Callable[[], Any]] = {}  # noqa: RUF012  as its base class declares it
    cpp_compile_command_flags: dict[str, Any] = {"include_pytorch": False, "shared": True}  # noqa: RUF012

    compiled_again: set[str] = set()  # noqa: RUF012  libraries whose files were not whole

    @staticmethod
    def cache_clear() -> None:
        _Libraries.cache.clear()
        _Libraries.compiled_again.clear()

    @classmethod
    def _load_library(cls, path: str, key: str) -> Any:
        library = Path(path)
        if not is_whole(library) and key not in cls.compiled_again:
            cls.compiled_again.add(key)
            # A full disk or an older version can leave such a file. Its source lies beside it.
            with FileLock(str(Path(get_lock_dir()) / f"{key}.lock"), timeout=LOCK_TIMEOUT):
                if not is_whole(library):  # another process may have been here
                    library.unlink()
            cls.cache.pop(key, None)
            return cls.load(library.with_suffix(".cpp").read_text())
        return super()._load_library(path, key)

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return _get_cpp_prefix_header(device)


def compiled_kernel(compiler: AsyncCompile, name: str, types: list[str], source: str, some: Sequence[int] = ()) -> Any:
    """A function that launches the kernel of this C++ source, or a future of it while it is being compiled.

    Of the tensors with the numbers `some` the kernel uses only some elements. If the device does not compute, nothing
    is compiled.
    """
    if not _C.computes():
        digest = hashlib.sha256(source.encode()).hexdigest()
        return _C.compiled_kernel(f"inductor::{name}_{digest[:12]}", 0, types, some)

    def launcher(library: Any) -> Launcher:
        # Kernels live as long as the process, and kernels of the same name in two programs may differ.
        unique = f"inductor::{name}_{library.key[:12]}"
        return cast(Launcher, _C.compiled_kernel(unique, address_of(getattr(library, ENTRY)), types, some))

    if get_compile_threads() <= 1:
        return launcher(_Libraries.load(source))
    load = _Libraries.load_async(source, submit_fn=compiler.submit)
    return LambdaFuture(lambda: launcher(load()))


def stream_on(stream: torch.Stream, device: int) -> torch.Stream:
    """The stream that is current on a device while `stream` is: itself, if it is of that device, else the call's."""
    return stream if stream.device_index == device else current_stream(device)


def address_of(function: Any) -> int:
    """The address of a function found by ctypes."""
    import ctypes

    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
