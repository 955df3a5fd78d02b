#!/usr/bin/env python3
"""Lists the public names of torch.cuda and torch.xpu: which of them torch.openreg has, and why it has not the others.

    python scripts/cuda_names.py > docs/cuda-names.md

A test compares the page with what this prints. A name that is neither there nor in WITHOUT makes it fail.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from types import ModuleType

import torch

MODULES = {
    "torch.cuda": ["", "amp", "graphs", "memory", "nvtx", "profiler", "random", "streams"],
    "torch.xpu": ["", "memory", "random", "streams"],
}

LIBRARY = "one of NVIDIA's libraries"
ONE_ALLOCATOR = "the device has one allocator"
OLD = "PyTorch has renamed it, for years"

# A regular expression for the whole name, with its module, and the reason.
WITHOUT = {
    r"torch\.xpu\.XPUGraph": "it is `CUDAGraph`",
    r"torch\.cuda\.(CudaError|cudaStatus|check_error|cudart|current_blas_handle|current_solver_handle)": LIBRARY,
    r"torch\.cuda\.(nccl|jiterator|tunable|sparse|has_magma)": LIBRARY,
    r"torch\.cuda\.(has_half)": "true of every device today",
    r"torch\.cuda\.GreenContext": "the processor cannot be divided among streams",
    r"torch\.cuda\.DeferredCudaCallError": "what `_lazy_call` calls raises its own error",
    r"torch\.cuda\.(memory\.)?CUDAPluggableAllocator|torch\.xpu\.(memory\.)?XPUPluggableAllocator": ONE_ALLOCATOR,
    r"torch\.cuda\.(memory\.)?caching_allocator_(enable|disabled)": "the device's allocator always keeps freed memory; "
    "`empty_cache` gives it back",
    r"torch\.cuda\.(memory\.)?(memory_cached|max_memory_cached|reset_max_memory_cached)": f"{OLD}: `memory_reserved`",
    r"torch\.cuda\.amp\.amp_definitely_not_available": "the device always is",
}


def public_names(module: ModuleType) -> list[str]:
    """Of `__all__`, or else what the module defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", module.__name__) == module.__name__
    )


def reason(name: str) -> str:
    found = [why for pattern, why in WITHOUT.items() if re.fullmatch(pattern, name)]
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} reasons in WITHOUT, expected 1")
    return found[0]


def page() -> str:
    lines = [
        "# Names of torch.cuda and torch.xpu",
        "",
        "The public names of PyTorch's modules that `torch.openreg` has, at the same place with the same arguments,",
        "and why it does not have the others. `scripts/cuda_names.py` writes this page; a test checks it. Functions",
        "of `torch.accelerator` and `torch.amp` take the device too.",
    ]
    for package, parts in MODULES.items():
        for part in parts:
            full = f"{package}.{part}".rstrip(".")
            ours = getattr(torch.openreg, part, None) if part else torch.openreg
            names = public_names(importlib.import_module(full))
            here = [name for name in names if hasattr(ours, name)]
            lines += ["", f"## {full}", ""]
            if here:
                lines += [f"Here ({len(here)} of {len(names)}): " + ", ".join(f"`{name}`" for name in here) + "."]
            missing = [name for name in names if name not in here]
            if missing:
                lines += [""] if here else []
                lines += ["| not here | reason |", "|---|---|"]
                reasons: dict[str, list[str]] = {}
                for name in missing:
                    reasons.setdefault(reason(f"{full}.{name}"), []).append(f"`{name}`")
                lines += [f"| {', '.join(names)} | {why} |" for why, names in reasons.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
