#!/usr/bin/env python3
"""Lists the public names of torch.cuda and torch.xpu: which of them torch.openreg has, and why it lacks the others.

    python scripts/cuda_names.py > docs/cuda-names.md

A test compares the page with the output. It fails if a name is missing from both torch.openreg and WITHOUT.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from types import ModuleType

import torch

MODULES = {
    "torch.cuda": ["", "amp", "comm", "graphs", "memory", "nvtx", "profiler", "random", "streams"],
    "torch.xpu": ["", "memory", "random", "streams"],
}

TORCH = ".".join(torch.__version__.split(".")[:2])

LIBRARY = "specific to CUDA or its libraries"
ONE_ALLOCATOR = "the device's allocator cannot be replaced"

# A regular expression that matches the whole qualified name, and the reason.
WITHOUT = {
    r"torch\.xpu\.XPUGraph": "called `CUDAGraph` here",
    r"torch\.cuda\.(CudaError|cudaStatus|check_error|cudart)": LIBRARY,
    r"torch\.cuda\.(nccl|jiterator|tunable)": LIBRARY,
    r"torch\.cuda\.sparse": "an empty module",
    r"torch\.cuda\.GreenContext": "the device's compute resources cannot be partitioned among streams",
    r"torch\.cuda\.DeferredCudaCallError": "errors of functions that `_lazy_call` runs are raised unchanged",
    r"torch\.cuda\.(memory\.)?CUDAPluggableAllocator|torch\.xpu\.(memory\.)?XPUPluggableAllocator": ONE_ALLOCATOR,
    r"torch\.cuda\.(memory\.)?caching_allocator_(enable|disabled)": "the device's allocator always keeps freed memory; "
    "`empty_cache` releases it",
    # Since torch 2.14 or 2.15.
    r"torch\.cuda\.(graphs\.)?export_graph_data": "describes CUDA's nodes; use `export_dot`",
    r"torch\.cuda\.graph_annotations": "requires CUDA's tools; use `record_function`",
}


# Call, what it does in torch.cuda, what it does here, why.
DIFFERENCES = [
    ("`f(1.5)`, for an `f` of a device", "the current device", "ValueError", "it hides a mistake"),
    ('`get_rng_state("cpu")`', "the state of the current GPU", "ValueError", "it hides a mistake"),
    (
        "`Event().device`",
        "None",
        "a device without an index",
        "events are plain `torch.Event`s, because `torch.Stream` and compiled code refuse those of a subclass",
    ),
    ("`get_rng_state(None)`", "AttributeError", "the state of the current device", "elsewhere None is the current one"),
    ("`get_rng_state(7)`", "IndexError", "RuntimeError", "the usual type for a device that does not exist"),
    ("`Event().record(1)`", "RuntimeError", "undefined", "PyTorch's `torch.Event` does not check its argument"),
    ("`Event(interprocess=True)`", "an event", "RuntimeError", "PyTorch has handles for CUDA's events only"),
    ("`Stream.cuda_stream`, `Event.cuda_event`", "handles", "AttributeError", "use `native_handle`, `event_id`"),
    (
        "`current_blas_handle()`, `current_solver_handle()`",
        "a handle",
        "0",
        "there is no handle; programs call these functions to initialise the device, and this works",
    ),
    ('`_sleep("x")`', "RuntimeError", "TypeError", "the usual type for this error"),
    ("`use_mem_pool(None)`, `nvtx.range(1)`", "AttributeError", "TypeError", "as above"),
    ("`make_graphed_callables(f, (1,))`", "AssertionError", "TypeError", "as above"),
    ("`make_graphed_callables((f, f), ((x,),))`", "IndexError", "TypeError", "as above"),
    ("`nvtx.mark(None)`, `nvtx.range_push(None)`", "accepted", "TypeError", "it hides a mistake"),
    (
        "`amp.autocast()`, `amp.GradScaler()`, `amp.custom_fwd()`, `amp.custom_bwd()`",
        "FutureWarning: use `torch.amp`",
        "no warning",
        "libraries find them as `getattr(torch, device_type).amp`",
    ),
]


def public_names(module: ModuleType) -> list[str]:
    """The names in `__all__`; without it, those that the module defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", module.__name__) == module.__name__
    )


def module_of(part: str) -> ModuleType | None:
    """torch.openreg's module with the name of torch.cuda's, if there is one."""
    name = f"torch.openreg.{part}".rstrip(".")
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def reason(name: str) -> str:
    found = [why for pattern, why in WITHOUT.items() if re.fullmatch(pattern, name)]
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} reasons in WITHOUT, expected 1")
    return found[0]


def page() -> str:
    lines = [
        "# Names of torch.cuda and torch.xpu",
        "",
        f"This page lists the public names of PyTorch {TORCH}'s modules that `torch.openreg` has, in the same place",
        "and with the same arguments, and the reasons for the missing names. `scripts/cuda_names.py` writes this page,",
        "and a test checks it. The functions of `torch.accelerator` and `torch.amp` support the device too.",
    ]
    for package, parts in MODULES.items():
        for part in parts:
            full = f"{package}.{part}".rstrip(".")
            ours = module_of(part)
            names = public_names(importlib.import_module(full))
            here = [name for name in names if hasattr(ours, name)]
            lines += ["", f"## {full}", ""]
            if here:
                lines += [f"Available ({len(here)} of {len(names)}): " + ", ".join(f"`{name}`" for name in here) + "."]
            missing = [name for name in names if name not in here]
            if missing:
                lines += [""] if here else []
                lines += ["|missing|reason|", "|---|---|"]
                reasons: dict[str, list[str]] = {}
                for name in missing:
                    reasons.setdefault(reason(f"{full}.{name}"), []).append(f"`{name}`")
                lines += [f"|{', '.join(names)}|{why}|" for why, names in reasons.items()]
    lines += [
        "",
        "## Differences in behaviour",
        "",
        "`tests/python/device/test_cuda_behaviour.py` compares the names with torch.cuda, call by call. These differ:",
        "",
        "|call|torch.cuda|here|reason|",
        "|---|---|---|---|",
        *(f"|{'|'.join(row)}|" for row in DIFFERENCES),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
