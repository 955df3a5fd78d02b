"""All operators: PyTorch's own database of them, forward and backward, against the CPU.

`torch.testing._internal` has sample inputs for some 700 operators and variants. Each of them is compared for float32,
float64, int64, bool, bfloat16, float16 and complex64, as far as the CPU has it, with the tolerances of PyTorch's own
tests. A refusal counts only for dtypes that the database lists for CUDA. Random operators are compared by dtype and
shape.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

from backend_conformance import Device, Level, check, database, missing, not_applicable, wrong
from backend_conformance.comparison import TOLERANCES, exact, leaves, on, with_gradients
from backend_conformance.verdicts import Verdict, first_line, verdict_of

HOST_ARGUMENTS = ("tensor_split",)  # tensors of indices that PyTorch wants on the CPU
# Their other results are what their own derivative needs; each backend has its own.
SAVE_FOR_BACKWARD = ("_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm", "native_layer_norm")
# Results of which only the shape is specified, because elements can be equal, or equally frequent.
UNSPECIFIED = {
    "argsort": (0,),
    **dict.fromkeys(("sort", "topk", "kthvalue", "median", "nanmedian"), (1,)),
    "mode": (0, 1),
}
LEAST_TOLERANCE = {torch.float32: 1e-3, torch.complex64: 1e-3, torch.float64: 1e-6}  # constants can be of float32
OTHER_SEEDS = 16
SECONDS = 2.0  # for an operator, after the first sample of each dtype


def moved(value: Any, where: torch.device | str, precise: bool = False) -> Any:
    """A sample's arguments on a device, or in float64."""

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            tensor = each.detach()
            if precise:
                tensor = exact(tensor)
            elif torch.device(where).type != "cpu":
                tensor = on(tensor, torch.device(where)) if tensor.layout == torch.strided else tensor.to(where)
            else:
                tensor = on(tensor, torch.device("cpu")) if tensor.layout == torch.strided else tensor.clone()
            return tensor.requires_grad_(each.requires_grad)
        if isinstance(each, torch.device) or (isinstance(each, str) and each == "cpu"):
            return torch.device(where)
        if precise and each in (torch.float16, torch.bfloat16):
            return torch.float64
        return each

    return tree_map(leaf, value)


def outcome(entry: Any, sample: Any, where: torch.device | str, gradients: bool, precise: bool = False) -> list[Any]:
    """Results, then gradients."""
    first, arguments, options = moved((sample.input, sample.args, sample.kwargs), where, precise)
    if entry.name in HOST_ARGUMENTS:
        arguments, options = sample.args, sample.kwargs
    torch.manual_seed(0)
    # A factory has no tensor that would carry the device.
    with torch.device(where) if not leaves([first, arguments, options]) else contextlib.nullcontext():
        result = sample.output_process_fn_grad(entry(first, *arguments, **options))
    outputs = [torch.tensor(result, device=where)] if isinstance(result, bool | int | float) else leaves(result)
    if entry.name in SAVE_FOR_BACKWARD:
        del outputs[1:]
    return with_gradients(outputs, leaves([first, list(arguments), options]) if gradients else ())


def difference(got: torch.Tensor, expected: torch.Tensor, bound: float) -> str | None:
    """What differs in the values, in a line."""
    host = got.detach().cpu()
    host, expected = (each.to_dense() if each.layout != torch.strided else each for each in (host, expected))
    host, expected = (exact(each.resolve_conj().resolve_neg()) for each in (host, expected))
    try:
        torch.testing.assert_close(host, expected, rtol=bound, atol=bound, equal_nan=True, check_dtype=False)
    except AssertionError as error:
        return " ".join(str(error).split())[:160]
    return None


class Judge:
    """Compares the samples of one operator and dtype."""

    def __init__(self, device: Device, entry: Any, dtype: torch.dtype) -> None:
        self.device, self.entry, self.dtype = device, entry, dtype
        self.judged = 0

    def random(self, sample: Any, expected: list[Any], gradients: bool) -> bool:
        """Whether the CPU gives something else with one of several other seeds: a result may be a single bit."""
        seed = torch.manual_seed  # which the entries of random operators call, too
        for other in range(12345, 12345 + OTHER_SEEDS):
            with mock.patch.object(torch, "manual_seed", lambda _, other=other: seed(other)):
                again = outcome(self.entry, sample, "cpu", gradients)
            if any(a.shape != b.shape or difference(a, b, 1e-6) for a, b in zip(again, expected, strict=True)):
                return True
        return False

    def judge(self, sample: Any, gradients: bool) -> str | None:
        """What is wrong with the device's outcome for a sample."""
        try:
            expected = outcome(self.entry, sample, "cpu", gradients)
        except Exception:
            return None
        if not expected:
            return None
        got = outcome(self.entry, sample, self.device.this, gradients)
        self.judged += 1
        if len(got) != len(expected):
            return f"{len(got)} tensors, on the CPU {len(expected)}"
        for mine, here in zip(got, expected, strict=True):
            if mine.device.type != self.device.name:
                return f"a result is on {mine.device}"
            if mine.dtype != here.dtype:
                return f"the dtype is {mine.dtype}, on the CPU {here.dtype}"
        text = self.values(sample, gradients, got, expected)
        return None if text and self.random(sample, expected, gradients) else text

    def values(self, sample: Any, gradients: bool, got: list[Any], expected: list[Any]) -> str | None:
        compared, own = database.is_compared(self.entry, self.dtype), database.tolerance(self.entry, self.dtype)
        precise: list[Any] | None = None
        for number, (mine, here) in enumerate(zip(got, expected, strict=True)):
            if mine.shape != here.shape:
                return f"the shape is {tuple(mine.shape)}, on the CPU {tuple(here.shape)}"
            if not compared or number in UNSPECIFIED.get(self.entry.name, ()):
                continue
            bound = max(own, TOLERANCES.get(here.dtype, 0.0), LEAST_TOLERANCE.get(here.dtype, 0.0))
            text = difference(mine, here, bound)
            if text and here.dtype in (torch.float16, torch.bfloat16):
                # The CPU rounds, too: several times its distance from float64 is allowed, and anything near the limits.
                try:
                    precise = precise or outcome(self.entry, sample, "cpu", gradients, precise=True)
                except Exception:
                    continue  # no reference
                reference = precise[number].double()
                inside = reference.abs() < torch.finfo(here.dtype).max / 4
                mine, here, reference = mine.cpu().double()[inside], here.double()[inside], reference[inside]
                error = (here - reference).abs().nan_to_num(0, 0, 0).max().item() if len(here) else 0.0
                text = difference(mine, reference, bound + 4 * error)
            if text:
                return text
        return None


@check(level=Level.COMPLETE, hook="the operator's kernels", cases=database.names, timeout=60.0)
def operator_follows_the_cpu(device: Device, case: str) -> None:
    """An operator gives the CPU's values, dtypes and shapes for PyTorch's sample inputs, and the CPU's gradients.

    The samples contain what users do seldom: empty tensors, no dimensions, broadcasting, strides, numbers in place of
    tensors.
    """
    if case not in database.operators():
        not_applicable("PyTorch's database of operators needs the packages numpy and expecttest")
    entry = database.operators()[case]
    limit = time.perf_counter() + SECONDS
    refused: list[str] = []
    judged = 0
    for dtype in database.DTYPES:
        if dtype not in entry.supported_dtypes("cpu"):
            continue
        try:
            torch.zeros(1, dtype=dtype).to(device.this)
        except (RuntimeError, TypeError):
            continue  # the group `copies` reports it
        half = dtype in (torch.float16, torch.bfloat16)
        gradients = dtype in (torch.float32, torch.complex64) and dtype in entry.supported_backward_dtypes("cpu")
        judge = Judge(device, entry, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for sample in database.samples(entry, dtype, gradients, 1 if half else 3):
                    if text := judge.judge(sample, gradients):
                        wrong(f"{dtype}: {text}")
                    if time.perf_counter() > limit:
                        break
            except Exception as error:
                if verdict_of(error) is not Verdict.MISSING:
                    raise
                if dtype in entry.supported_dtypes("cuda") or dtype == torch.float32:
                    refused.append(f"{dtype}: {first_line(error)[:160]}")
        judged += judge.judged
    if refused:
        missing("; ".join(refused[:2]) + (f" (and {len(refused) - 2} more dtypes)" if len(refused) > 2 else ""))
    if not judged:
        not_applicable("the CPU has no result for any sample")
