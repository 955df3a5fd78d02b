#!/usr/bin/env python3
"""Whether a call recovers when memory runs out, over PyTorch's operator database (op_db).

    python tests/census/out_of_memory.py [--slice] [--only REGEX] [--json FILE]

Each sample is called with its 1st, 2nd, ... allocation failing: the function, its gradients, in place and with `out=`.
Each such call raises `torch.OutOfMemoryError`, leaves its arguments as they were (those that it does not write) and no
memory behind, and the next call gives the same bits as before. The first round meets operators that have not been
planned, and its results are compared with the CPU's. Exit status 1 if a call does something else.
"""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map

from command_line import parser
from entries import swept
from layouts import memory_of, poison
from leftovers import NEVER, bits_of, forget, memory_beyond, memory_in_use, parts_of, same_bits
from outcome import (
    DEVICE,
    clear_errors,
    device_module,
    same_values,
    with_gradients,
)
from processes import run
from result import Result, failure, report
from samples import Call, Mover, call_of, detached, is_plain, tensors

SLICE = 128  # one entry in so many in every run
MOST = 100  # allocations of a call that fail: more are spread evenly over all


class Form:
    """A call in one of its forms, which `function` makes."""

    def __init__(self, name: str, call: Call, function: Callable[[Call], Any]) -> None:
        self.name, self.call, self.function = name, call, function
        self.found: list[str] = []
        self.calls = 0
        self.written = self.written_on_cpu()

    def written_on_cpu(self) -> set[int]:
        """The numbers of the arguments that it changes. Raises what it raises."""
        call = self.moved("cpu")
        parts = parts_of(tuple(call))
        before = list(map(memory_of, parts))
        self.function(call)
        after = map(memory_of, parts)
        return {i for i, (a, b) in enumerate(zip(after, before, strict=True)) if not torch.equal(a, b)}

    def moved(self, device: str) -> Call:
        """The arguments, anew."""
        call = Call(*Mover(device)(tuple(self.call)))
        torch.manual_seed(0)
        return call

    def on_cpu(self, seed: int = 0) -> Any:
        call, seed_all = self.moved("cpu"), torch.manual_seed
        seed_all(seed)
        with patch.object(torch, "manual_seed", lambda _: seed_all(seed)):  # random entries set a seed of their own
            return self.function(call)

    def undisturbed(self) -> Any:
        result = self.function(self.moved(DEVICE))
        torch.accelerator.synchronize()
        return result

    def allocations(self) -> int:
        call = self.moved(DEVICE)
        with device_module().faults.inject(f"oom@allocation:{NEVER}") as fault:
            self.function(call)
        return int(fault.counted)

    def disturbed(self, number: int) -> bool:
        """Calls with one allocation failing. Whether there is one of that number."""
        call = self.moved(DEVICE)
        kept = [part for i, part in enumerate(parts_of(tuple(call))) if i not in self.written]
        before = list(map(memory_of, kept))
        torch.accelerator.synchronize()
        start = memory_in_use()
        error = result = None
        self.calls += 1
        with device_module().faults.inject(f"oom@allocation:{number}") as fault:
            try:
                result = self.function(call)
            except Exception as raised:
                error = raised
            try:
                torch.accelerator.synchronize()
            except Exception as raised:
                self.report(number, f"an error of the stream: {failure(raised)}")
                clear_errors()
        if fault.fired and error is None:
            self.report(number, "the error is lost")
        elif error is not None and not (fault.fired and isinstance(error, torch.OutOfMemoryError)):
            self.report(number, f"raises {failure(error)}")
        forget(error)
        del error, result
        if (left := memory_beyond(start)) > 0:
            self.report(number, f"leaves {left} bytes")
        if not same_bits(list(map(memory_of, kept)), before):
            self.report(number, "changes its arguments")
        return bool(fault.fired)

    def check(self) -> None:
        start = memory_in_use()
        self.compare()
        if (left := memory_beyond(start)) > 0:
            self.found.append(f"[{self.name}] all calls together leave {left} bytes")

    def compare(self) -> None:
        number = 1
        while number <= MOST and self.disturbed(number):  # the operators have no plans yet
            number += 1
        got = self.undisturbed()
        if not self.is_right(got):
            self.found.append(f"[{self.name}] after its first calls have failed, it has not the CPU's result")
        expected = bits_of(got)
        del got
        repeats = same_bits(bits_of(self.undisturbed()), expected)
        count = self.allocations()
        for number in sorted({1 + i * count // MOST for i in range(MOST)}) if count > MOST else range(1, count + 1):
            if not self.disturbed(number):
                self.report(number, f"it is not made, of {count}")
            if repeats and not same_bits(bits_of(self.undisturbed()), expected):
                self.report(number, "the next call has another result")

    def is_right(self, got: Any) -> bool:
        """Whether it is the CPU's result. Whether an entry has that at all is judged by the census."""
        try:
            expected = self.on_cpu()
            return same_values(tree_map(to_cpu, got), expected) or any(
                not same_values(self.on_cpu(seed), expected) for seed in range(1, 6)
            )
        except Exception:
            return True

    def report(self, number: int, found: str) -> None:
        self.found.append(f"[{self.name}, allocation {number}] {found}")


def to_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf


def unwritten(result: torch.Tensor) -> torch.Tensor:
    return torch.full(result.shape, poison(result.dtype), dtype=result.dtype)


def forms(op: Any, call: Call) -> Iterator[tuple[str, Call, Callable[[Call], Any]]]:
    def function(call: Call) -> Any:
        return op(call.input, *call.args, **call.kwargs)

    plain = detached(call)
    yield "function", plain, function
    if any(tensor.requires_grad for tensor in tensors(tuple(call))):
        yield "gradients", call, partial(with_gradients, op)
    if op.inplace_variant is not None:
        yield "in place", plain, lambda call: op.inplace_variant(call.input, *call.args, **call.kwargs)
    if op.supports_out:
        results = function(Call(*Mover("cpu")(tuple(plain))))
        if tensors(results) and all(map(is_plain, tensors(results))):
            yield "out", plain._replace(kwargs={**plain.kwargs, "out": tree_map(unwritten, results)}), function


def sweep(samples: int, op: Any, result: Result) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    dtype = getattr(torch, result.dtype)
    backward = dtype in op.supported_backward_dtypes("cpu")
    surprises = []
    try:
        for call in itertools.islice(map(call_of, op.sample_inputs("cpu", dtype, requires_grad=backward)), samples):
            for name, changed, function in forms(op, call):
                try:
                    form = Form(name, changed, function)
                except Exception:  # there is no such form
                    continue
                form.check()
                result.samples += form.calls
                surprises += form.found[:3]
    except Exception as error:
        surprises.append(f"the check failed: {failure(error)}")
        clear_errors()
    for found in surprises[:8]:
        result.unequal(found)
    return result


def main() -> int:
    options = parser(__doc__, f"one entry in {SLICE}, by a hash of its name", samples=2).parse_args()
    results = run(
        swept("out of memory", SLICE, options.slice, re.compile(options.only)),
        partial(sweep, options.samples),
        options.jobs,
    )
    bad = report(results, options.json)
    print(
        f"{len(results)} entries, {sum(result.samples for result in results)} failing calls; {len(bad)} entries differ"
    )
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
