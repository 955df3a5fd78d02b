"""Compares, in a process that has launched nothing yet, each operator's first launch with its second.

Arguments: names of operators of op_db. Writes a JSON object: for each operator that differs, what each launch showed.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._utils import wrapper_set_seed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Dispatched(TorchDispatchMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(function))
        return function(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


def seen_in(launch: Callable[[], object]) -> dict[str, Any]:
    """What a program can observe of a call besides its results."""
    dispatched: list[str] = []
    called: list[str] = []
    generator = torch.get_rng_state()
    error = None
    with (
        profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler,
        Called(called),
        Dispatched(dispatched),
    ):
        try:
            launch()
        except Exception as raised:
            error = type(raised).__name__
    events = [event for event in profiler.events() if event.name.startswith(("aten::", "openreg::"))]
    return {
        "operators": [[event.name, str(event.input_shapes)] for event in events],
        "memory of the CPU": sum(event.self_cpu_memory_usage for event in events),
        "modes": [dispatched, called],
        "error": error,
        "draws from the CPU's generator": not torch.equal(generator, torch.get_rng_state()),
        "grad mode": torch.is_grad_enabled(),
        "default dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "device": torch.openreg.current_device(),
    }


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().openreg().requires_grad_(tensor.requires_grad)


def differences(op: Any) -> dict[str, Any]:
    dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
    differentiates = op.supports_autograd and dtype == torch.float32
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=differentiates)))
    given, args, kwargs = tree_map_only(torch.Tensor, on_device, (sample.input, sample.args, sample.kwargs))
    inputs = [
        each for each in tree_leaves((given, args, kwargs)) if isinstance(each, torch.Tensor) and each.requires_grad
    ]

    def launch() -> None:
        results = [each for each in tree_leaves(op(given, *args, **kwargs)) if isinstance(each, torch.Tensor)]
        for result in results:
            if result.requires_grad:
                torch.autograd.grad(result.abs().sum(), inputs, allow_unused=True, retain_graph=True)

    torch.openreg.synchronize()
    launches = [seen_in(launch) for _ in range(2)]
    return {key: [each[key] for each in launches] for key in launches[0] if launches[0][key] != launches[1][key]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    gc.disable()  # it would show what finalisers call
    torch.manual_seed(1)
    torch.empty(1, device="openreg").fill_(1)  # the device is in use
    seen_in(lambda: wrapper_set_seed(torch.rand, 1))  # the first uses of the profiler, and of PyTorch's caches
    names = set(sys.argv[1:])
    found = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if name in names and op.dtypes and (different := differences(op)):
            found[name] = different
    json.dump(found, sys.stdout)
