#!/usr/bin/env python3
"""Writes the tables of structured operators: one line for each that the given torch has. Called by the build.

    python tools/generate_structured.py --torch DIRECTORY [--without OPERATOR]... FILE...

The operators are divided among the files so that these take about the same time to compile. Needs PyYAML and
typing_extensions, which torchgen, a package beside torch, imports.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgen.model import NativeFunctionsGroup

# The cost of compiling a signature, in units of the cost of each operator that has it.
SIGNATURE_COST = 3

# Operators whose kernels give the result other strides (those of the input's memory format) or another shape than their
# meta functions request.
RESHAPED_BY_KERNELS = {
    "isin_Scalar_Tensor",
    "reflection_pad3d",
    "reflection_pad3d_backward",
    "replication_pad2d",
    "replication_pad3d",
}

# Operators that raise by what their kernels have found, at the call as on CUDA: the calling thread runs them.
RAISING_BY_ELEMENTS = {"_linalg_eigh", "_linalg_svd"}

HEADER = """\
// Written by tools/generate_structured.py from the schema that ships with torch.
#include "ops/tiers/structured_macros.h"
#include "slot.h"

{includes}

namespace openreg::ops {{

OPENREG_LIBRARY_IMPL(aten, m) {{
{lines}
}}

}}  // namespace openreg::ops
"""


@dataclass(frozen=True, order=True)
class Group:
    signature: str  # operators that have the same share code if they are in the same file
    root: str  # the name of the headers and the kernel: "add"
    meta: str  # "add_Tensor"
    functional: str  # "add_Tensor"
    out: str  # "add_out"
    inplace: str  # "add__Tensor", or "" if there is none
    native: str  # "ufunc_add_CPU": the CPU's class; "" if it is not an iterator

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
    # Values that a meta function precomputes replace arguments of the implementation.
    return group.out.structured_inherits is not None and group.out.precomputed is None


def structured_groups(torch: Path, without: Set[str] = frozenset()) -> list[Group]:
    """The groups of operators that the torch in this directory has, but for some."""
    sys.path.insert(0, str(torch.parent))
    from torchgen.api import meta
    from torchgen.gen import get_grouped_native_functions, parse_native_yaml
    from torchgen.model import DispatchKey, NativeFunctionsGroup

    schema = torch.parent / "torchgen" / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(schema / "native_functions.yaml"), str(schema / "tags.yaml"))
    cpu = parsed.backend_indices[DispatchKey.CPU]
    groups = []
    for group in get_grouped_native_functions(parsed.native_functions):
        if not isinstance(group, NativeFunctionsGroup) or not group.structured:
            continue
        functional = group.functional.func.name.unambiguous_name()
        if functional in RESHAPED_BY_KERNELS | RAISING_BY_ELEMENTS | without or not cpu.has_kernel(group.out):
            continue
        groups.append(
            Group(
                signature=", ".join(str(argument.type) for argument in group.functional.func.arguments.flat_all),
                root=group.out.root_name,
                meta=meta.name(group),
                functional=functional,
                out=group.out.func.name.unambiguous_name(),
                inplace=group.inplace.func.name.unambiguous_name() if group.inplace else "",
                native=cpu.get_kernel(group).kernel if is_iterator(group) else "",
            )
        )
    return sorted(groups)


def generate(torch: Path, count: int, without: Set[str] = frozenset()) -> list[str]:
    """The contents of `count` files."""
    parts: list[list[Group]] = [[] for _ in range(count)]
    costs = [0] * count
    for _, same in itertools.groupby(structured_groups(torch, without), key=lambda group: group.signature):
        groups = list(same)
        cheapest = costs.index(min(costs))
        parts[cheapest] += groups
        costs[cheapest] += SIGNATURE_COST + len(groups)
    files = []
    for part in parts:
        includes = sorted({line for group in part for line in group.includes()})
        files.append(HEADER.format(includes="\n".join(includes), lines="\n".join(group.line() for group in part)))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", type=Path, required=True, help="the directory of the package")
    parser.add_argument("--without", action="append", default=[], help="an operator that has a kernel of its own")
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    texts = generate(arguments.torch, len(arguments.files), set(arguments.without))
    for file, text in zip(arguments.files, texts, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
