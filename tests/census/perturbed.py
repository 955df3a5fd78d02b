#!/usr/bin/env python3
"""Calls of PyTorch's operator database (op_db) with one argument changed, on the CPU and on openreg.

    python tests/census/perturbed.py [--slice] [--only REGEX] [--json FILE]

For each sample: the call as it is meant, so that the device knows it; then each changed call (`perturbations.py`),
twice. The outcome has to be the CPU's: the same type of error, raised at the call, or the same values. An error that
comes when the host waits is in order only where elements decide: where the CPU takes the call with other elements.
Random operators are compared by success. Exit status 1 if something differs.
"""

from __future__ import annotations

import itertools
import re
import resource
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from command_line import parser
from entries import PREFERRED, census, dtype_name, entry_name, first, is_swept
from outcome import DEVICE, clear_errors, compare, same_values
from perturbations import Perturbed, perturbed
from processes import run
from result import Result, failure, report
from samples import Call, Mover, call_of, mapped, names_device, tensors
from survivors import run_surviving

SLICE = 16  # one entry in so many in every run
CPU_SECONDS, SECONDS = 3.0, 30.0
CPU_MEMORY = 1 << 30  # what takes more, or longer, is not judged
NO_MEMORY = re.compile(r"can't allocate memory|not enough memory|std::bad_alloc|Storage size calculation overflowed")

# Entries in which a sequence of numbers becomes a tensor on the device, whose elements decide; with the changes, as a
# regular expression.
ELEMENTS_FROM_NUMBERS = {"__getitem__": r"input: |args\[0\]\[\d\]: ", "unravel_index": r"args\[0\]\[\d\]: "}
# Changes that the CPU does not check, and with which it reads or returns memory that is none of the call's: left out.
UNCHECKED = {
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), r"args\[[12]\]: "),  # no such interpolation, or padding
    **dict.fromkeys(
        ("_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm"),
        r"input: .* \[1, 3, 2, 4\]$",  # more channels than there are weights
    ),
    "_segment_reduce.offsets": r"input: ",  # offsets beyond the data
    "native_group_norm": r"args\[2\]: \d+ -> 0$",  # a batch of none: the CPU does not write the result
    **dict.fromkeys(
        ("resize_", "resize_as_"),  # new elements are what the memory held
        r"input: .* -> torch\.|args\[0\]: .* -> torch\.|args\[0\]\[\d\]: \d+ -> \d+",
    ),
}
# Changes that only the CPU's way through PyTorch refuses: other devices take another one, CUDA too.
REFUSED_FOR_CPU = {"ldexp": r"args\[0\]: .* -> torch.bool", "nn.functional.max_pool1d": r"input: .* -> torch.int64"}


class Late(Exception):
    """An error that came when the host waited, and what was at the call."""

    def __init__(self, error: Exception, at_call: Any) -> None:
        super().__init__(f"late error: {said(error)} (at the call: {said(at_call)})")
        self.in_order = isinstance(error, torch.AcceleratorError) and not isinstance(at_call, Exception)
        self.text = str(error)


def outcome(op: Any, call: Call, device: str, seed: int = 0) -> Any:
    """What the call returns, or the error."""
    moved = Mover(device)(call)
    torch.manual_seed(seed)
    seed_all = torch.manual_seed
    if device == DEVICE:
        torch.accelerator.synchronize()
    try:
        with patch.object(torch, "manual_seed", lambda _: seed_all(seed)):
            result = op(moved.input, *moved.args, **moved.kwargs)
    except Exception as error:
        result = error
    if device == DEVICE:
        if isinstance(result, torch.AcceleratorError):  # of a command, raised where the call itself waits
            clear_errors()
            return Late(result, None)
        try:
            torch.accelerator.synchronize()
        except Exception as error:
            clear_errors()
            return Late(error, result)
    return result


def said(result: Any) -> str:
    if isinstance(result, Late):
        return str(result)
    if isinstance(result, Exception):
        text = re.sub(r"\. Later work on that stream.*", "", " ".join(str(result).split()))
        return f"{type(result).__name__}: {text[:200]}"
    return "returns"


def elements_decide(op: Any, name: str, change: Perturbed) -> bool:
    """Whether the CPU, which refuses the call, takes it with other elements."""
    if re.match(ELEMENTS_FROM_NUMBERS.get(name, "(?!)"), change.change):
        return True
    fills = [mapped(torch.zeros_like), mapped(torch.ones_like)]
    return any(not isinstance(outcome(op, fill(change.call), "cpu"), Exception) for fill in fills)


def is_only_on_cuda(op: Any, change: Perturbed) -> bool:
    """Whether CUDA has the operator for the dtype to which the input is changed, and the CPU has not (dtypes.py)."""
    found = re.match(r"input: .* -> torch\.(\w+) \[", change.change)
    return found is not None and getattr(torch, found[1]) in op.supported_dtypes("cuda") - op.supported_dtypes("cpu")


def difference(name: str, expected: Any, got: Any, is_random: bool) -> str:
    """Empty if there is none."""
    if isinstance(expected, Exception):
        return "" if type(got) is type(expected) else f"CPU {said(expected)}; {DEVICE} {said(got)}"
    if isinstance(got, Exception):
        return f"CPU returns; {DEVICE} {said(got)}"
    if is_random or (expected is NotImplemented and got is NotImplemented):
        return ""
    try:
        compare(name, expected, got, lambda: False)
    except Exception as error:
        return f"CPU returns; {DEVICE} returns something else: {' '.join(str(error).split())[:300]}"
    return ""


def cpu_can_be_asked(op: Any, call: Call) -> str:
    """Empty if the CPU answers with little memory. Raises nothing."""
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + CPU_MEMORY, resource.RLIM_INFINITY))
    result = outcome(op, call, "cpu")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if isinstance(result, MemoryError) or (isinstance(result, RuntimeError) and NO_MEMORY.search(str(result))):
        return "takes too much memory"
    return ""


def is_that_error(got: Any, expected: Exception) -> bool:
    return isinstance(got, Late) and got.in_order and str(expected).rstrip(".") in got.text


def judge(op: Any, name: str, meant: Call, change: Perturbed) -> str:
    """How the device's answers differ from the CPU's: the first, and the second."""
    expected = outcome(op, change.call, "cpu")
    if isinstance(expected, Exception) and is_only_on_cuda(op, change):
        return ""
    is_random = False
    if not isinstance(expected, Exception):
        if tensors(expected) and not names_device(change.call):
            return ""  # a factory without a device: its results belong to the CPU everywhere
        again = outcome(op, change.call, "cpu", seed=1)
        is_random = isinstance(again, Exception) or (expected is not again and not same_values(expected, again))
    outcome(op, meant, DEVICE)
    answers = [outcome(op, change.call, DEVICE) for _ in range(2)]
    if isinstance(expected, Exception) and any(isinstance(got, Late) for got in answers):
        late = elements_decide(op, name, change)
        answers = [expected if late and is_that_error(got, expected) else got for got in answers]
    found = [difference(name, expected, got, is_random) for got in answers]
    if not any(found):
        return ""
    if found[0] == found[1]:
        return found[0]
    return " | ".join(
        f"{which} call: {text or 'as the CPU'}" for which, text in zip(("1st", "2nd"), found, strict=True)
    )


def check_perturbed(op: Any, result: Result, samples: int) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    dtype = getattr(torch, result.dtype)
    try:
        meant = [call_of(sample) for sample in itertools.islice(op.sample_inputs("cpu", dtype), samples)]
        left_out = [re.compile(each.get(result.name, "(?!)")) for each in (UNCHECKED, REFUSED_FOR_CPU)]
        changes = [(call, change) for call in meant for change in perturbed(call)]
        calls = [each for each in changes if not any(pattern.match(each[1].change) for pattern in left_out)]
    except Exception as error:
        result.status, result.details = "cpu", [f"no samples: {failure(error)}"]
        return result
    cpu = run_surviving(lambda i: cpu_can_be_asked(op, calls[i][1].call), range(len(calls)), CPU_SECONDS)
    judged = [i for i, answer in cpu.items() if not answer]
    result.cpu_failures = len(calls) - len(judged)
    found = run_surviving(lambda i: judge(op, result.name, *calls[i]), judged, SECONDS)
    result.samples = len(found)
    for i, text in sorted(found.items()):
        if text:
            result.unequal(f"{calls[i][1].change}: {text}")
    return result


def entries(in_slice: bool, pattern: re.Pattern[str]) -> list[tuple[Any, list[Result]]]:
    """The entries, each in the usual dtype and in the smallest integers."""
    chosen = []
    for op, _ in census():
        name = entry_name(op)
        if not is_swept(op, in_slice, SLICE) or not pattern.search(name):
            continue
        dtypes = first(op, PREFERRED) + first(op, [torch.int8])
        chosen.append((op, [Result(name, "perturbed", dtype_name(dtype)) for dtype in dtypes]))
    return chosen


def main() -> int:
    options = parser(__doc__, f"one entry in {SLICE}, by a hash of its name", samples=2).parse_args()
    results = run(
        entries(options.slice, re.compile(options.only)),
        lambda op, result: check_perturbed(op, result, options.samples),
        options.jobs,
    )
    bad = report(results, options.json)
    judged, asked = (sum(counts) for counts in ([r.samples for r in results], [r.cpu_failures for r in results]))
    differing = sum(len(result.details) for result in bad)
    print(f"{judged} calls judged, {asked} not (the CPU crashes, or takes too long); {differing} differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
