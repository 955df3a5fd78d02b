"""`out=`: outputs of the right and of a wrong shape, dtype, layout and device, and such that share memory."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_map

from outcome import DEVICE, UNDEFINED, Cost, assert_same_values, changes_with_seed, clear_errors, on_cpu, sentence
from result import Result, failure
from samples import Call, Mover, call_of, detached, tensors


def garbage(tensor: torch.Tensor) -> torch.Tensor:
    """Fills it with what no result is."""
    value = float("nan") if tensor.is_floating_point() or tensor.is_complex() else 1
    return tensor.fill_(value)


def other_dtype(tensor: torch.Tensor, choices: tuple[torch.dtype, torch.dtype]) -> torch.Tensor:
    return garbage(torch.empty_like(tensor, dtype=choices[tensor.dtype == choices[0]]))


# Outputs, made from the expected ones.
OUTPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "right": lambda e: garbage(torch.empty_like(e)),
    "noncontiguous": lambda e: noncontiguous_like(garbage(e.clone(memory_format=torch.contiguous_format))),
    "transposed": lambda e: garbage(torch.empty(e.shape[::-1], dtype=e.dtype)).permute(list(range(e.dim()))[::-1]),
    "empty": lambda e: torch.empty(0, dtype=e.dtype),
    "wrong shape": lambda e: garbage(torch.empty([size + 1 for size in e.shape] or [2], dtype=e.dtype)),
    "integers": lambda e: other_dtype(e, (torch.int64, torch.bool)),
    "doubles": lambda e: other_dtype(e, (torch.float64, torch.float32)),
    "complex": lambda e: other_dtype(e, (torch.complex128, torch.complex64)),
    # With memory for all: where the CPU does not look, it must not write elsewhere.
    "overlapping": lambda e: torch.ones(e.numel() + 1, dtype=e.dtype).as_strided(e.shape, [0] * e.dim()),
}
# After the call the contents are undefined, if the CPU takes them at all.
UNDEFINED_CONTENTS = {"overlapping", "on the input, shifted"}


@dataclass
class Outcome:
    error: Exception | None
    warnings: list[str]
    outs: list[torch.Tensor]
    facts: list[Any]  # about them


def call_with(op: Any, call: Call, outs: Any) -> Outcome:
    before = [(out.data_ptr(), out.numel()) for out in tensors(outs)]
    error, result = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.manual_seed(0)
            result = op(call.input, *call.args, **call.kwargs, out=outs)
            torch.ones(1, device=DEVICE).item()  # warnings of kernels come when the host waits
        except Exception as raised:
            error = raised
            clear_errors()
    facts: list[Any] = []
    if error is None:
        for (pointer, numel), out, returned in zip(
            before, tensors(outs), tensors(result) or tensors(outs), strict=True
        ):
            kept = out.data_ptr() == pointer if numel else None
            facts.append((out.dtype, tuple(out.shape), out.stride(), kept, returned is out))
    said = sorted({sentence(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)})
    return Outcome(error, said, tensors(outs), facts)


def narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """Wider outputs hold results that were computed in single precision."""
    single = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return tensor.to(single.get(tensor.dtype, tensor.dtype))


def difference(expected: Outcome, got: Outcome, contents: bool) -> str | None:
    """What the device did otherwise, if anything."""
    if expected.error is not None:
        if got.error is None:
            return f"no error; the CPU raises {failure(expected.error)}"
        if type(got.error) is type(expected.error) and sentence(got.error) == sentence(expected.error):
            return None
        return f"{failure(got.error)}; the CPU raises {failure(expected.error)}"
    if got.error is not None:
        return f"{failure(got.error)}; the CPU raises nothing"
    if got.facts != expected.facts:
        return f"dtype, shape, strides, same memory, returned: {got.facts}, on the CPU {expected.facts}"
    if got.warnings != expected.warnings:
        return f"warnings {got.warnings}, on the CPU {expected.warnings}"
    try:
        for g, e in zip(got.outs, expected.outs, strict=True):
            if contents:
                assert_same_values(narrowed(g.cpu()), narrowed(e))
    except AssertionError as error:
        return failure(error)
    return None


def shared_outputs(call: Call, expected: Any) -> dict[str, tuple[Call, torch.Tensor]]:
    """Calls whose output shares memory with the input."""
    x = call.input
    if not (isinstance(x, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return {}
    if x.shape != expected.shape or x.dtype != expected.dtype or x.layout is not torch.strided or not x.numel():
        return {}
    memory = torch.cat([x.detach().flatten(), x.detach().flatten()[:1]])
    same, shifted = memory[:-1].view(x.shape), memory[1:].view(x.shape)
    return {
        "the input": (Call(same, call.args, call.kwargs), same),
        "on the input, shifted": (Call(same, call.args, call.kwargs), shifted),
    }


def moved(call: Call, outs: Any, device: str) -> tuple[Call, Any]:
    mover = Mover(device)
    return Call(*mover(tuple(call))), mover(outs)


def check_call(op: Any, call: Call, result: Result, cost: Cost) -> bool:
    """Whether the CPU could be asked."""
    try:
        expected = on_cpu(op, call)[0]
        random = changes_with_seed(op, detached(call), (expected, []))
    except Exception as error:
        result.cpu_failures += 1
        result.details.append(f"fails on the CPU: {failure(error)}")
        return False
    if not tensors(expected):
        return False
    cases = {name: (call, tree_map(make, expected)) for name, make in OUTPUTS.items()}
    cases |= shared_outputs(call, expected)
    undefined = UNDEFINED_CONTENTS | (set(cases) if random or UNDEFINED.match(result.name) else set())
    for case, (changed, outs) in cases.items():
        if case == "overlapping" and all(out.numel() < 2 for out in tensors(outs)):
            continue
        on_host = call_with(op, *moved(changed, outs, "cpu"))
        arguments = moved(changed, outs, DEVICE)
        there: Outcome = cost.measure(partial(call_with, op, *arguments))
        found = difference(on_host, there, contents=case not in undefined)
        if found is not None:
            result.unequal(f"[{case}] {found}")
        if case == "right" and on_host.error is None:
            check_wrong_device(op, call, outs, result)
    return True


def check_wrong_device(op: Any, call: Call, outs: Any, result: Result) -> None:
    """The inputs on the device, the outputs on the CPU."""
    there = call_with(op, moved(call, None, DEVICE)[0], outs)
    if not isinstance(there.error, RuntimeError) or isinstance(there.error, torch.AcceleratorError):
        result.unequal(f"[wrong device] {'no error' if there.error is None else failure(there.error)}")


def check_outputs(op: Any, result: Result, samples: int) -> None:
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(1, device=DEVICE).item()  # emits the warnings of earlier checks
    dtype = getattr(torch, result.dtype)
    torch.manual_seed(0)
    cost = Cost()
    chosen = list(itertools.islice(op.sample_inputs("cpu", dtype), samples))
    result.samples = sum(check_call(op, call_of(sample), result, cost) for sample in chosen)
    result.waits, result.launches = cost.waits, cost.launches
    if not result.samples and result.status == "equal":
        result.status = "cpu"
