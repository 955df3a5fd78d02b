"""The calls that PyTorch's database says are refused, as the CPU and as a CUDA device shall refuse them."""

from __future__ import annotations

import itertools
import re
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from outcome import DEVICE, Cost, clear_errors
from result import Result, failure
from samples import Call, Mover, call_of


class CudaIsOpenreg(TorchFunctionMode):
    """Makes PyTorch's functions use openreg if they are passed "cuda"."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def replace(leaf: Any) -> Any:
            if isinstance(leaf, str) and re.fullmatch(r"cuda(:\d+)?", leaf):
                return leaf.replace("cuda", DEVICE)
            return torch.device(DEVICE, leaf.index) if isinstance(leaf, torch.device) and leaf.type == "cuda" else leaf

        if func is torch.Tensor.cuda:
            func = getattr(torch.Tensor, DEVICE)
        return func(*tree_map(replace, tuple(args)), **tree_map(replace, dict(kwargs or {})))


def raised(op: Any, call: Call) -> Exception | None:
    try:
        op(call.input, *call.args, **call.kwargs)
        torch.accelerator.synchronize()
    except Exception as error:
        clear_errors()
        return error
    return None


def matches(error: Exception | None, expected: Any) -> bool:
    """As PyTorch's own test asks: a subclass counts too."""
    return isinstance(error, expected.error_type) and re.search(expected.error_regex, str(error)) is not None


def described(error: Exception | None) -> str:
    return "no error" if error is None else failure(error)


def check_cpu_errors(op: Any, result: Result) -> None:
    torch.manual_seed(0)
    for i, expected in enumerate(op.error_inputs("cpu")):
        call = call_of(expected.sample_input)
        copy = Call(*Mover(DEVICE)(tuple(call)))
        on_cpu = raised(op, call)
        if not matches(on_cpu, expected):
            result.cpu_failures += 1
            result.details.append(f"sample {i}: the CPU does not: {described(on_cpu)}")
            continue
        got = raised(op, copy)
        result.samples += 1
        if not matches(got, expected):
            result.unequal(f"cpu sample {i}: {described(got)}; the CPU raises {described(on_cpu)}")
        elif type(got) is not type(on_cpu):
            result.unequal(f"cpu sample {i}: type {described(got)}; the CPU raises {described(on_cpu)}")


def check_cuda_errors(op: Any, result: Result) -> None:
    torch.manual_seed(0)
    with CudaIsOpenreg():
        for i, expected in enumerate(op.error_inputs("cuda")):
            call = call_of(expected.sample_input)
            got = raised(op, call)
            result.samples += 1
            if not matches(got, expected):
                wanted = f"{expected.error_type.__name__}: {expected.error_regex}"
                result.unequal(f"cuda sample {i}: {described(got)}; expected {wanted}")


def call_as_meant(op: Any, dtype: torch.dtype) -> None:
    """Calls it with what it takes, so that it is known to take such dtypes: errors have to come at the call still."""
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), 20):
        call = Call(*Mover(DEVICE)(tuple(call_of(sample))))
        raised(op, call)


def check_errors(op: Any, result: Result, samples: int) -> None:
    """All of them, whatever `samples` is."""
    cost = Cost()
    for dtype in {torch.float32, torch.int64, getattr(torch, result.dtype)} & op.supported_dtypes("cpu"):
        call_as_meant(op, dtype)
    cost.measure(lambda: check_cpu_errors(op, result))
    cost.measure(lambda: check_cuda_errors(op, result))
    result.waits, result.launches = cost.waits, cost.launches
