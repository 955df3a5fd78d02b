#!/usr/bin/env python3
"""Writes cpp/ops/tiers/structured/*.cpp: one line for each structured operator of the installed torch.

The files are committed; a test runs this program and compares. Needs PyYAML, which torchgen reads the schema with.

    python tools/generate_structured.py [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgen.model import NativeFunctionsGroup

FILES = 6

# Their kernels give the result other strides, those of the input's memory format, or another shape than their meta
# functions ask for.
RESHAPED_BY_KERNELS = {
    "isin_Scalar_Tensor",
    "reflection_pad3d",
    "reflection_pad3d_backward",
    "replication_pad2d",
    "replication_pad3d",
}

HEADER = """\
// Written by tools/generate_structured.py from the schema that ships with torch {version}. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

{includes}

namespace openreg::ops {{

OPENREG_LIBRARY_IMPL(aten, m) {{
{lines}
}}

}}  // namespace openreg::ops
"""


@dataclass(frozen=True)
class Group:
    root: str  # names the headers and the kernel: "add"
    meta: str  # "add_Tensor"
    functional: str  # "add_Tensor"
    out: str  # "add_out"
    inplace: str | None  # "add__Tensor"
    native: str | None  # "ufunc_add_CPU": the CPU's class, if it is an iterator

    def line(self) -> str:
        names = f"{self.functional}, {self.out}, {self.root}_outf"
        forms = f"ITERATED({self.meta}, {self.native}, {names})" if self.native else f"STRUCTURED({self.meta}, {names})"
        if self.inplace:
            forms += f", at::_ops::{self.inplace}"
        return f"  register_structured<{forms}>(m);"

    def includes(self) -> list[str]:
        kinds = ["cpu_dispatch", "meta", *(["native"] if self.native else []), "ops"]
        return [f"#include <ATen/ops/{self.root}_{kind}.h>" for kind in kinds]


def is_iterator(group: NativeFunctionsGroup) -> bool:
    # What a meta function computes beforehand goes to the implementation in place of arguments.
    return group.out.structured_inherits is not None and group.out.precomputed is None


def structured_groups() -> list[Group]:
    from torchgen.api import meta
    from torchgen.gen import get_grouped_native_functions, parse_native_yaml
    from torchgen.model import DispatchKey, NativeFunctionsGroup

    spec = importlib.util.find_spec("torchgen")
    assert spec is not None and spec.submodule_search_locations is not None
    schema = Path(spec.submodule_search_locations[0]) / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(schema / "native_functions.yaml"), str(schema / "tags.yaml"))
    cpu = parsed.backend_indices[DispatchKey.CPU]
    groups = []
    for group in get_grouped_native_functions(parsed.native_functions):
        if not isinstance(group, NativeFunctionsGroup) or not group.structured:
            continue
        functional = group.functional.func.name.unambiguous_name()
        if functional in RESHAPED_BY_KERNELS:
            continue
        groups.append(
            Group(
                root=group.out.root_name,
                meta=meta.name(group),
                functional=functional,
                out=group.out.func.name.unambiguous_name(),
                inplace=group.inplace.func.name.unambiguous_name() if group.inplace else None,
                native=cpu.get_kernel(group).kernel if is_iterator(group) else None,
            )
        )
    return sorted(groups, key=lambda group: (group.root, group.functional))


def torch_version() -> str:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations is not None
    namespace: dict[str, str] = {}
    exec((Path(spec.submodule_search_locations[0]) / "version.py").read_text(), namespace)
    return namespace["__version__"].split("+")[0]


def generate() -> dict[str, str]:
    """The files, by name."""
    groups = structured_groups()
    size = math.ceil(len(groups) / FILES)
    version = torch_version()
    files = {}
    for index in range(FILES):
        part = groups[index * size : (index + 1) * size]
        includes = sorted({line for group in part for line in group.includes()})
        files[f"structured_{index}.cpp"] = HEADER.format(
            version=version,
            includes="\n".join(includes),
            lines="\n".join(group.line() for group in part),
        )
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parent.parent / "cpp" / "ops" / "tiers" / "structured"
    parser.add_argument("--output", type=Path, default=default)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, text in generate().items():
        (output / name).write_text(text)


if __name__ == "__main__":
    main()
