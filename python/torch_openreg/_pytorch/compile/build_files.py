"""Files that the compiler writes into caches. If it is killed, it leaves none that a later run would take for whole."""

from __future__ import annotations

import functools
import os
import struct
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

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


def is_whole(library: Path) -> bool:
    """Whether this is a shared library with its last part, the table of sections. Loading a part of one may crash."""
    with library.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(b"\x7fELF"):
            return False
        table, size, number = _HEADER.unpack(header)
        return bool(table + size * number <= library.stat().st_size)
