"""The checks of the census: each takes an entry of op_db and a dtype, and raises AssertionError or says how it went."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dtypes import check_dtypes
from errors import check_errors
from graphs import check_graphs
from outcome import Cost, changes_with_seed, clear_errors, compare, on_cpu, on_device, sentence, waiting_operators
from outputs import check_outputs
from repeats import check_repeats
from result import Result, failure
from samples import VARIANTS, Call, call_of, detached, names_device, shape_calls, tensors


def calls_of(op: Any, check: str, dtype: torch.dtype, backward: bool, samples: int) -> Iterator[Call]:
    torch.manual_seed(0)
    if check == "shapes":
        yield from shape_calls(op, dtype)
        return
    change = VARIANTS[check][0] if check in VARIANTS else lambda call: call
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples):
        yield change(call_of(sample))


def check_values(op: Any, result: Result, samples: int) -> None:
    """Values, dtypes, shapes and strides of results and gradients, as on the CPU."""
    dtype = getattr(torch, result.dtype)
    backward = dtype in op.supported_backward_dtypes("cpu")
    try:
        calls = list(calls_of(op, result.check, dtype, backward, samples))
    except Exception as error:  # what the CPU cannot do is not ours to judge
        result.status, result.details = "cpu", [f"no samples: {failure(error)}"]
        return
    result.backward = backward and result.check != "shapes"
    cost = Cost()
    for i, call in enumerate(calls):
        check_call(op, call, i, result, cost)
    result.waits, result.launches = cost.waits, cost.launches
    if not result.samples and result.status == "equal":
        result.status = "cpu"


def answer_of_cpu(op: Any, call: Call, number: int, result: Result) -> tuple[Call, Any]:
    """What the CPU makes of it, without gradients if it cannot compute those. Raises what it raises."""
    try:
        return call, on_cpu(op, call)
    except Exception as error:
        result.cpu_failures += 1
        result.details.append(f"sample {number} fails on the CPU: {failure(error)}")
        if not any(tensor.requires_grad for tensor in tensors(tuple(call))):
            raise
        call = detached(call)
        return call, on_cpu(op, call)


def check_call(op: Any, call: Call, number: int, result: Result, cost: Cost) -> None:
    try:
        call, expected = answer_of_cpu(op, call, number, result)
    except Exception as error:
        if result.check == "shapes":
            check_refusal(op, call, error, number, result, cost)
        return
    if tensors(expected) and not names_device(call):
        return  # a factory without a device: its results belong to the CPU everywhere
    try:
        waits = cost.waits
        got = on_device(op, call, cost)
        if cost.waits != waits:
            for operator, count in waiting_operators(op, call).items():
                operator = f"gradient of {result.name}" if operator == "gradient" else operator
                result.waiting[operator] = result.waiting.get(operator, 0) + count
        compare(result.name, expected, got, lambda: changes_with_seed(op, call, expected))
        result.samples += 1
    except Exception as error:
        result.unequal(f"sample {number}: {failure(error)}")
        clear_errors()


def check_refusal(op: Any, call: Call, expected: Exception, number: int, result: Result, cost: Cost) -> None:
    try:
        on_device(op, call, cost)
    except Exception as error:
        if type(error) is type(expected) and sentence(error) == sentence(expected):
            result.samples += 1
            return
        got = failure(error)
    else:
        got = "no error"
    clear_errors()
    result.unequal(f"sample {number}: {got}; the CPU raises {failure(expected)}")


CHECKS: dict[str, Callable[[Any, Result, int], None]] = {
    "values": check_values,
    **dict.fromkeys(VARIANTS, check_values),
    "shapes": check_values,
    "out": check_outputs,
    "errors": check_errors,
    "graphs": check_graphs,
    "repeats": check_repeats,
    "dtypes": check_dtypes,
}


def run_check(op: Any, result: Result, samples: int) -> Result:
    try:
        CHECKS[result.check](op, result, samples)
    except Exception as error:
        result.unequal(f"the check failed: {failure(error)}")
        clear_errors()
    return result
