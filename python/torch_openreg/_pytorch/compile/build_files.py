"""The C++ compiler: the files that it writes into caches, and when it is not called at all."""

from __future__ import annotations

import functools
import os
import struct
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from ... import _C

# Of an ELF file: where its table of sections is, the size of an entry, and their number.
_HEADER = struct.Struct("<40xQ10xHH2x")


def write_atomically(module: ModuleType) -> None:
    """Makes torch._inductor.cpp_builder write a file beside its place, and rename it once the compiler has succeeded.

    Libraries and precompiled headers count as compiled if there is a file of that name.
    """
    original = module.CppBuilder.build

    @functools.wraps(original)
    def build(self: Any) -> None:
        place, output = self._target_file, self._output
        beside = Path(f"{place}.{os.getpid()}.{threading.get_ident()}")
        if not output.endswith(f" {place}"):  # a path that is relative, or quoted
            original(self)
            return
        self._output = f"{output.removesuffix(place)}{beside}"
        try:
            original(self)
            beside.replace(place)
        finally:
            self._output = output
            beside.unlink(missing_ok=True)

    module.CppBuilder.build = build


def find_no_compiler(module: ModuleType) -> None:
    """Makes torch._inductor.cpp_builder ask no compiler for its version where devices do not compute."""
    original = module.cpp_compiler_search

    @functools.wraps(original)
    def cpp_compiler_search(search: tuple[str | None, ...]) -> str:
        names = [] if _C.computes() else [name for name in search if name]
        return names[0] if names else str(original(search))

    module.cpp_compiler_search = cpp_compiler_search  # type: ignore[attr-defined]


def try_no_instructions(module: ModuleType) -> None:
    """Makes torch._inductor.cpu_vec_isa compile no test of vector instructions where devices do not compute."""
    original = module.VecISA.check_build

    @functools.wraps(original)
    def check_build(self: Any, code: str) -> bool:
        return not _C.computes() or original(self, code)

    module.VecISA.check_build = check_build


def is_whole(library: Path) -> bool:
    """Whether this is a shared library with its last part, the table of sections. Loading a part of one may crash."""
    with library.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(b"\x7fELF"):
            return False
        table, size, number = _HEADER.unpack(header)
        return bool(table + size * number <= library.stat().st_size)
