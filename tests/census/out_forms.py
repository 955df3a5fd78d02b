#!/usr/bin/env python3
"""Whether operators write their outputs, whatever the strides of these are, and nothing else.

    python tests/census/out_forms.py [--slice] [--only REGEX] [--device openreg] [--json FILE]

The operators are those of ATen that have a form with outputs (`out=`, `grad_input=`, ...) and are called by an entry of
PyTorch's operator database (op_db), forward or backward. Each is called with outputs of every layout, and with inputs
that are contiguous or channels-last. An output is then what the functional form returns, and all memory around its
elements is as before; one that overlaps itself may also be refused. `--device cpu` shows where the CPU's kernels do not
respect strides. What may differ is listed in `LISTED`. Exit status 1 if something else does.
"""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from command_line import parser
from entries import PREFERRED, census, entry_name, first, is_swept
from layouts import DISTINCT, OUTPUTS, SLICE, Outcome, contiguous, memory_of, poison, stays
from outcome import DEVICE, UNDEFINED, clear_errors, with_gradients
from processes import run
from result import Result, failure, report
from samples import Mover, call_of, channels_last, is_plain, tensors

CALLS = 4  # of an operator, at most; each with other sizes or numbers

Recorded = tuple[tuple[Any, ...], dict[str, Any]]

# What may differ, by operator, and why.
UNWRITTEN = "it leaves elements of an output unwritten, which no one reads"
RESIZED = "PyTorch resizes the output, also on a GPU, while it computes the mean"
LISTED: dict[str, str] = {
    **dict.fromkeys(("aten::_ctc_loss.Tensor_out", "aten::_ctc_loss.out"), UNWRITTEN),
    "aten::soft_margin_loss.out": RESIZED,
    "aten::binary_cross_entropy.out": "PyTorch computes the mean of the output as it was given, also on a GPU",
}


def out_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that takes the same arguments and outputs."""

    def inputs(schema: torch._C.FunctionSchema) -> list[tuple[str, str]]:
        return [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]

    packet = op.overloadpacket
    if any(argument.is_out for argument in op._schema.arguments):
        return None
    for overload in packet.overloads():
        candidate: torch._ops.OpOverload = getattr(packet, overload)
        outs = [argument for argument in candidate._schema.arguments if argument.is_out]
        if outs and inputs(candidate._schema) == inputs(op._schema):
            return candidate
    return None


class Recorder(TorchDispatchMode):
    """Keeps the calls of each operator that has a form with outputs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[torch._ops.OpOverload, list[Recorded]] = {}
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten" and all(map(is_plain, tensors((args, kwargs)))):
            self.note(func, args, kwargs)
        return func(*args, **kwargs)

    def note(self, func: Any, args: Any, kwargs: Any) -> None:
        def shape(leaf: Any) -> Any:
            return (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf

        def copied(leaf: Any) -> Any:
            return contiguous(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf

        known = self.calls.setdefault(func, [])
        signature = f"{func}{tree_map(shape, (args, kwargs))}"
        if len(known) < CALLS and signature not in self.seen:
            self.seen.add(signature)
            known.append(tree_map(copied, (tuple(args), dict(kwargs))))


def recorded(in_slice: bool, samples: int) -> Iterator[tuple[torch._ops.OpOverload, list[Recorded]]]:
    """What op_db's entries call on the CPU."""
    recorder = Recorder()
    for op, _ in census():
        if not is_swept(op, in_slice, SLICE) or UNDEFINED.match(entry_name(op)):
            continue
        for dtype in first(op, PREFERRED):
            backward = dtype in op.supported_backward_dtypes("cpu")
            made = op.sample_inputs("cpu", dtype, requires_grad=backward)
            for sample in itertools.islice(made, samples):
                try:
                    with recorder:
                        with_gradients(op, call_of(sample))
                except Exception:  # the CPU refuses it
                    continue
    random = torch.Tag.nondeterministic_seeded
    for op, calls in recorder.calls.items():
        if calls and random not in op.tags:
            yield op, calls


class Sweep:
    """One operator."""

    def __init__(self, op: torch._ops.OpOverload, result: Result, device: str) -> None:
        self.op, self.result, self.device = op, result, device
        form = out_form(op)
        assert form is not None
        self.form = form
        self.names = [argument.name for argument in self.form._schema.arguments if argument.is_out]

    def outputs(self, call: Recorded, expected: Outcome, what: str, name: str) -> None:
        layout = {**OUTPUTS, "contiguous": contiguous, "channels last": channels_last}[name]
        args, kwargs = Mover(self.device)(call)
        empty = [torch.full(each.shape, poison(each.dtype), dtype=each.dtype) for each in tensors(expected.result)]
        outs = Mover(self.device)([layout(each) for each in empty])
        if len(outs) != len(self.names):  # a list of outputs
            return
        before = [memory_of(out) for out in outs]
        got = Outcome(lambda: self.form(*args, **kwargs, **dict(zip(self.names, outs, strict=True))), self.device)
        found = "" if all(map(stays, outs, before)) else "writes elsewhere"
        if not found and (name in DISTINCT or name not in OUTPUTS):
            got.result = outs
            found = got.difference(expected)
        self.result.samples += 1
        if found:
            self.result.unequal(f"[{what} inputs, {name} outputs] {found}")

    def sample(self, call: Recorded) -> None:
        def changed(leaf: Any) -> Any:
            return channels_last(leaf) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = Mover(self.device)(call)
        expected = Outcome(lambda: self.op(*args, **kwargs), self.device)
        results = tensors(expected.result)
        if expected.error is not None or not results or not all(map(is_plain, results)):
            return
        for name in [*OUTPUTS, "contiguous", "channels last"]:
            self.outputs(call, expected, "contiguous", name)
        if any(tensor.dim() in (4, 5) for tensor in tensors(call)):
            for name in ["contiguous", "channels last", "transposed"]:
                self.outputs(tree_map(changed, call), expected, "channels-last", name)


def sweep(device: str, entry: tuple[torch._ops.OpOverload, list[Recorded]], result: Result) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    op, calls = entry
    try:
        sweep = Sweep(op, result, device)
        for call in calls:
            sweep.sample(call)
    except Exception as error:
        result.unequal(f"the check failed: {failure(error)}")
        clear_errors()
    return result


def main() -> int:
    command = parser(__doc__, f"one entry of op_db in {SLICE}", samples=6)
    command.add_argument("--device", default=DEVICE, choices=[DEVICE, "cpu"])
    options = command.parse_args()
    torch.set_num_threads(1)  # this process forks
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    pattern = re.compile(options.only)
    chosen = [
        ((op, calls), [Result(name, "out forms", "")])
        for op, calls in recorded(options.slice, options.samples)
        if (form := out_form(op)) is not None
        and (name := f"{form._schema.name}.{form._overloadname}") not in LISTED
        and pattern.search(name)
    ]
    results = run(chosen, partial(sweep, options.device), options.jobs)
    bad = report(results, options.json)
    print(f"{len(results)} operators, {sum(result.samples for result in results)} calls; {len(bad)} operators differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
