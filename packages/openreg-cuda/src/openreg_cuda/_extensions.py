"""Extensions in CUDA C++, which need NVIDIA's compiler and cannot run: each way to build them raises an error."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from . import _unsupported

_SUFFIXES = (".cu", ".cuh")
_LIBRARIES = "it would be linked with CUDA's libraries; CppExtension builds C++ for the CPU"


def refuse(cpp_extension: ModuleType) -> None:
    """Called with ``torch.utils.cpp_extension``."""
    compile_now = cpp_extension._jit_compile
    build_extensions = cpp_extension.BuildExtension.build_extensions

    @functools.wraps(compile_now)
    def _jit_compile(
        name: str,
        sources: Iterable[str],
        cflags: Any,
        cuda_cflags: Any,
        sycl_cflags: Any,
        ldflags: Any,
        include_paths: Any,
        build_directory: str,
        verbose: bool,
        with_cuda: bool | None,
        *others: Any,
        **options: Any,
    ) -> Any:
        sources = [sources] if isinstance(sources, str) else list(sources)
        _check(name, sources)
        if with_cuda:
            _refusal(name, _LIBRARIES)()
        flags = (cflags, cuda_cflags, sycl_cflags, ldflags, include_paths)
        return compile_now(name, sources, *flags, build_directory, verbose, with_cuda, *others, **options)

    @functools.wraps(build_extensions)
    def build(self: Any) -> Any:
        for extension in self.extensions:
            _check(extension.name, extension.sources)
        return build_extensions(self)

    @functools.wraps(cpp_extension.CUDAExtension)
    def CUDAExtension(name: str, sources: Iterable[str], *args: Any, **kwargs: Any) -> Any:
        _check(name, sources)
        return _refusal(name, _LIBRARIES)()

    cpp_extension._jit_compile = _jit_compile  # type: ignore[attr-defined]
    cpp_extension.BuildExtension.build_extensions = build
    cpp_extension.CUDAExtension = CUDAExtension  # type: ignore[attr-defined]


def _check(name: str, sources: Iterable[Any]) -> None:
    if any(os.fspath(source).endswith(_SUFFIXES) for source in sources):
        _refusal(name, _unsupported.SOURCES)()


def _refusal(name: str, reason: str) -> Callable[..., Any]:
    return _unsupported.refusal(f"the extension {name!r}", reason)
