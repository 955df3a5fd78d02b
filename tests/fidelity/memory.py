#!/usr/bin/env python3
"""What operators and programs allocate on an accelerator, as JSON: a reference is measured on a GPU, and compared.

    python tests/fidelity/memory.py cuda > cuda_memory.json
    TORCH_OPENREG_COMPUTE=0 python tests/fidelity/memory.py openreg > openreg_memory.json
    python tests/fidelity/memory.py compare cuda_memory.json openreg_memory.json

For each operator of PyTorch's database, of a small and of a large call: the bytes of its results (and gradients), the
peak above them, and the number of allocations, each also of the first call in the process, which sets up workspaces.
For each training program of `peak_programs.py`: the peaks of two runs. Needs torch, expecttest and, on a GPU, five
minutes. `--only REGEX` selects by name.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

LARGE = 1 << 20  # elements of the inputs of the large calls, about


def measure(device: str, call: Callable[[], Any]) -> dict[str, int] | str:
    """What a call allocates, or its error."""
    memory = torch.get_device_module(device)
    gc.collect()
    torch.accelerator.synchronize()
    before = memory.memory_stats()
    memory.reset_peak_memory_stats()
    try:
        result = call()
        torch.accelerator.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    after = memory.memory_stats()

    def current(stats: dict[str, int]) -> int:
        return stats.get("allocated_bytes.all.current", 0)

    figures = {
        "kept": current(after) - current(before),
        "above": after["allocated_bytes.all.peak"] - current(after),
        "allocations": after["allocation.all.allocated"] - before.get("allocation.all.allocated", 0),
    }
    del result
    return figures


def enlarged(sample: Any) -> Any:
    """The arguments of a call, of which tensors of the input's dimensions are repeated, up to LARGE elements."""
    given = (sample.input, sample.args, sample.kwargs)
    if not isinstance(sample.input, torch.Tensor) or sample.input.dim() == 0 or sample.input.numel() == 0:
        return given
    times = max(1, LARGE // sample.input.numel())

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != sample.input.dim() or tensor.shape[0] != sample.input.shape[0]:
            return tensor
        return tensor.detach().repeat(times, *[1] * (tensor.dim() - 1)).requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, repeat, given)


def operator_calls(device: str, only: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The largest of the first calls of each entry in the database, as it is and larger, forward and backward."""
    from torch.testing._internal.common_methods_invocations import op_db

    for entry in sorted(op_db, key=lambda each: each.full_name):
        if not entry.dtypes:
            continue
        dtype = torch.float32 if torch.float32 in entry.dtypes else sorted(entry.dtypes, key=str)[0]
        grad = entry.supports_autograd and dtype.is_floating_point
        if not re.search(only, entry.full_name):
            continue
        torch.manual_seed(0)
        samples = list(itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=grad), 20))
        if not samples:
            continue
        sample = max(samples, key=lambda each: each.input.numel() if isinstance(each.input, torch.Tensor) else 0)
        for size, made in (("small", (sample.input, sample.args, sample.kwargs)), ("large", enlarged(sample))):
            here = tree_map_only(
                torch.Tensor, lambda each: each.detach().to(device).requires_grad_(each.requires_grad), made
            )

            def call(entry: Any = entry, here: Any = here, grad: bool = grad) -> Any:
                result = entry.op(here[0], *here[1], **here[2])
                outputs = [each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
                sums = [each.sum() for each in outputs if each.requires_grad and each.dtype.is_floating_point]
                if grad and sums:
                    sum(sums).backward()
                return result

            yield f"{entry.full_name} {size}", call


def observe(device: str, only: str) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "memory"))
    os.environ["TEST_DEVICE"] = device
    import peak_programs

    operators = {}
    for name, call in operator_calls(device, only):
        operators[name] = [measure(device, call) for _ in range(2)]
    programs = {}
    for name, make in peak_programs.TRAININGS.items():
        if not re.search(only, name):
            continue
        torch.manual_seed(0)
        programs[name] = [peak_programs.figures(lambda make=make: make()()) for _ in range(2)]  # type: ignore[misc]
    properties = torch.get_device_module(device).get_device_properties(0)
    return {
        "torch": torch.__version__,
        "device": properties.name,
        "capability": [properties.major, properties.minor],
        "operators": operators,
        "programs": programs,
    }


def differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """A line for each operator and program whose figures differ."""
    for group in ("operators", "programs"):
        for name, expected in there[group].items():
            found = here[group].get(name)
            if found != expected:
                yield f"{name}: {expected} there, {found} here"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", help="a device, or `compare`")
    parser.add_argument("files", nargs="*", type=Path, help="the reference and what is compared with it")
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    if arguments.device != "compare":
        print(json.dumps(observe(arguments.device, arguments.only), indent=1))
        return 0
    there, here = (json.loads(file.read_text()) for file in arguments.files)
    lines = list(differences(there, here))
    print(*lines, f"{len(lines)} differ", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
