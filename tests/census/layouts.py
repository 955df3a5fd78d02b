#!/usr/bin/env python3
"""Whether the layout of tensors changes what operators compute, over PyTorch's operator database (op_db).

    python tests/census/layouts.py [--slice] [--only REGEX] [--device openreg] [--json FILE]

Each sample is called with its tensors laid out in another way (expanded, overlapping, empty at an offset, transposed,
with gaps), and with contiguous copies of the same elements. Both calls are made on the device, and have the same
outcome: values, gradients, or the type of error. Calls in place and outputs (`out=`) are laid out so, too, and what
lies between and around their elements stays as it was. Nothing is compared with the CPU, whose kernels are wrong here
and there: `--device cpu` shows where. What may differ is listed in `LISTED`. Exit status 1 if something else does.
"""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map

from command_line import parser
from entries import swept
from outcome import DEVICE, changes_with_seed, clear_errors, on_cpu, widened, with_gradients
from processes import run
from result import Result, failure, report
from samples import Call, Mover, call_of, detached, is_plain, mapped, tensors

SLICE = 16  # one entry in so many in every run
TOLERANCE = 1e-4  # kernels for vectors round otherwise than those for single elements

Layout = Callable[[torch.Tensor], torch.Tensor]


def poison(dtype: torch.dtype) -> Any:
    """What no result is made of: an index that is out of range, or not a number."""
    return float("nan") if dtype.is_floating_point or dtype.is_complex else True if dtype is torch.bool else 101


def strided(x: torch.Tensor, strides: list[int], offset: int, behind: int = 3) -> torch.Tensor:
    """The elements of `x` with these strides, in memory of which the rest is poison."""
    end = (
        offset + 1 + sum((size - 1) * stride for size, stride in zip(x.shape, strides, strict=True))
        if x.numel()
        else offset
    )
    memory = torch.full((end + behind,), poison(x.dtype), dtype=x.dtype)
    return memory.as_strided(x.shape, strides, offset).copy_(x)


def dense_strides(shape: torch.Size, order: list[int]) -> list[int]:
    """The strides of memory that is filled in this order of dimensions, the first one fastest."""
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= max(1, shape[dim])
    return strides


def dims(x: torch.Tensor) -> list[int]:
    return list(range(x.dim()))


def expanded(dim: Callable[[int], int]) -> Layout:
    """The first element of a dimension stands for all of it."""

    def change(x: torch.Tensor) -> torch.Tensor:
        if not x.dim() or not x.numel():
            return x
        one = x.narrow(dim(x.dim()), 0, 1)
        return strided(one, dense_strides(one.shape, dims(one)[::-1]), 3).expand(x.shape)

    return change


def windows(x: torch.Tensor) -> torch.Tensor:
    """All strides are 1: rows overlap."""
    if not x.numel():
        return x
    count = 1 + sum(size - 1 for size in x.shape)
    memory = torch.cat([x.flatten()[:count], torch.full((3,), poison(x.dtype), dtype=x.dtype)])
    return memory.as_strided(x.shape, [1] * x.dim())


# Those that overlap themselves cannot be written.
OVERLAPPING: dict[str, Layout] = {
    "expanded first dimension": expanded(lambda dim: 0),
    "expanded last dimension": expanded(lambda dim: dim - 1),
    "windows": windows,
    "nothing": lambda x: (
        strided(x, dense_strides(x.shape, dims(x)[::-1]), 3).narrow(0, x.shape[0], 0) if x.dim() else x
    ),
    "one element": lambda x: strided(x.flatten()[:1].squeeze(), [], 2).expand(x.shape) if x.numel() else x,
}
DISTINCT: dict[str, Layout] = {
    "offset": lambda x: strided(x, dense_strides(x.shape, dims(x)[::-1]), 5, behind=1000),
    "transposed": lambda x: strided(x, dense_strides(x.shape, dims(x)), 1),
    "rotated": lambda x: strided(x, dense_strides(x.shape, dims(x)[:1] + dims(x)[:0:-1]), 0),
    "gaps": lambda x: strided(x, [2 * stride for stride in dense_strides(x.shape, dims(x)[::-1])], 1),
}
INPUTS = {**OVERLAPPING, **DISTINCT}
OUTPUTS = {name: layout for name, layout in INPUTS.items() if name != "nothing"}


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


# What may differ: the layouts, as a regular expression, and why. What is said of PyTorch is in functions that devices
# share.
GEOMETRY = "it gives access to the memory, so the layout decides"
VIEW = "PyTorch's function, or its gradient, makes a view that the layout does not allow"
TIES = "equal elements are in any order"
SINGULAR = "the matrix is singular, and its gradient not defined"
WRITTEN = "it writes an argument that overlaps itself"
RESIZED = "PyTorch resizes an output, or what is changed in place, and writes the new elements"
CLONED = "PyTorch copies the strides of an argument that overlaps itself, and writes the copy"
NO_VALUE = "PyTorch does not write the mean of no elements"
UNCHECKED = "PyTorch does not check the sizes of weights, or the offsets"
NOT_OUT = "PyTorch's out= takes other arguments, or has an error of its own"
NO_VARIANCE = "equal elements have no variance, so the rounding of their sum shows"
EXPANDED = "expanded .*|one element"
ALL = ""
LISTED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("as_strided", "as_strided.partial_views", "as_strided_copy", "as_strided_scatter"), (ALL, GEOMETRY)
    ),
    **dict.fromkeys(("resize_", "resize_as_", "view", "view_as", "view_as_complex"), (ALL, GEOMETRY)),
    **dict.fromkeys(
        ("take_along_dim", "kron", "nn.functional.max_unpool2d", "nn.functional.max_unpool3d"), (ALL, VIEW)
    ),
    "nn.functional.max_unpool3d.grad": (ALL, VIEW),
    "nn.functional.max_unpool2d.grad": (ALL, VIEW),
    **dict.fromkeys(("sort", "argsort"), (EXPANDED, TIES)),
    **dict.fromkeys(("linalg.slogdet", "logdet"), (EXPANDED, SINGULAR)),
    "nn.functional.instance_norm": (EXPANDED, WRITTEN),
    "nn.functional.embedding": ("expanded .*|one element|windows", WRITTEN),
    "nn.functional.batch_norm": (EXPANDED, NO_VARIANCE),
    "_batch_norm_with_update": (f"out|{EXPANDED}", f"{NOT_OUT}; {NO_VARIANCE}"),
    "stft": (
        "expanded .*|one element|windows",
        "the gradient of as_strided is divided among elements that share memory",
    ),
    **dict.fromkeys(("diagonal_scatter", "select_scatter", "slice_scatter"), ("windows", CLONED)),
    "addbmm": ("in place", RESIZED),
    **dict.fromkeys(("matmul", "nn.functional.linear"), ("out", RESIZED)),
    **dict.fromkeys(("nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss"), ("nothing", NO_VALUE)),
    **dict.fromkeys(
        ("_native_batch_norm_legit", "native_batch_norm"), (f"nothing|{EXPANDED}", f"{UNCHECKED}; {NO_VARIANCE}")
    ),
    "native_group_norm": (ALL, "it takes contiguous arguments only; group_norm makes them so"),
    "nn.functional.embedding_bag": (EXPANDED, UNCHECKED),
    **dict.fromkeys(("fft.ihfft2", "fft.ihfftn", "histogramdd", "nonzero"), ("out", NOT_OUT)),
}


class Outcome:
    """What a call returned, or raised."""

    def __init__(self, call: Callable[[], Any], device: str) -> None:
        self.error: Exception | None = None
        self.result: Any = None
        seed_all = torch.manual_seed
        seed_all(0)
        try:
            with patch.object(torch, "manual_seed", lambda _: seed_all(0)):
                self.result = call()
            if device == DEVICE:
                torch.accelerator.synchronize()
        except Exception as error:
            self.error = error
            clear_errors()

    def difference(self, expected: Outcome) -> str:
        """Empty if there is none."""
        if type(self.error) is not type(expected.error):
            return f"{said(self.error)}; contiguous: {said(expected.error)}"
        if self.error is not None:
            return ""
        try:
            for g, e in zip(tensors(self.result), tensors(expected.result), strict=True):
                assert (g.dtype, g.shape, g.layout) == (e.dtype, e.shape, e.layout), (g.dtype, g.shape, g.layout)
                g, e = (widened(each).cpu() if is_plain(each) else each.cpu() for each in (g, e))
                torch.testing.assert_close(g, e, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        except (AssertionError, ValueError) as error:
            return " ".join(str(error).split())[:200]
        return ""


def said(error: Exception | None) -> str:
    return "returns" if error is None else failure(error)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of all bytes of its storage."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).cpu().clone()


def stays(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether the memory of a tensor is as before, except for its elements."""
    after = memory_of(tensor)
    if after.shape != before.shape:
        return False
    others = torch.ones(before.shape, dtype=torch.bool)
    size = tensor.element_size()
    strides = [*(stride * size for stride in tensor.stride()), 1]
    others.as_strided([*tensor.shape, size], strides, tensor.storage_offset() * size).fill_(False)
    return torch.equal(after[others], before[others])


class Sweep:
    """One entry with one dtype."""

    def __init__(self, op: Any, result: Result, device: str) -> None:
        self.op, self.result, self.device = op, result, device
        self.listed = re.compile(LISTED.get(result.name, ("(?!)", ""))[0])

    def report(self, what: str, found: str) -> None:
        self.result.samples += 1
        if found and not self.listed.match(what):
            self.result.unequal(f"[{what}] {found}")

    def run(self, call: Callable[[], Any]) -> Outcome:
        return Outcome(call, self.device)

    def moved(self, call: Call) -> Call:
        return Call(*Mover(self.device)(tuple(call)))

    def inputs(self, call: Call, name: str) -> None:
        if self.listed.match(name):  # some end the process
            return
        changed = mapped(INPUTS[name])(call)
        calls = [self.moved(each) for each in (changed, mapped(contiguous)(changed))]
        got, expected = (self.run(partial(with_gradients, self.op, each)) for each in calls)
        self.report(name, got.difference(expected))

    def in_place(self, call: Call, name: str) -> None:
        def outcome(x: torch.Tensor) -> tuple[Outcome, bool]:
            moved = self.moved(Call(x, call.args, call.kwargs))
            before = memory_of(moved.input)
            outcome = self.run(lambda: self.op.inplace_variant(moved.input, *moved.args, **moved.kwargs))
            return outcome, outcome.error is not None or stays(moved.input, before)

        x = DISTINCT[name](call.input)
        (got, unharmed), (expected, _) = outcome(x), outcome(contiguous(x))
        self.report(f"in place, {name}", got.difference(expected) if unharmed else "writes elsewhere")

    def outputs(self, call: Call, expected: Outcome, name: str) -> None:
        def make(result: torch.Tensor) -> torch.Tensor:
            return OUTPUTS[name](torch.full(result.shape, poison(result.dtype), dtype=result.dtype))

        outs = Mover(self.device)(tree_map(make, expected.result))
        before = [memory_of(out) for out in tensors(outs)]
        got = self.run(lambda: self.op(call.input, *call.args, **call.kwargs, out=outs))
        found = "" if all(map(stays, tensors(outs), before)) else "writes elsewhere"
        if name in DISTINCT and not found:
            got.result = outs
            found = got.difference(expected)
        self.report(f"out, {name}", found)

    def sample(self, call: Call) -> None:
        for name in INPUTS:
            self.inputs(call, name)
        call = detached(call)
        if self.op.inplace_variant and isinstance(call.input, torch.Tensor) and is_plain(call.input):
            for name in DISTINCT:
                self.in_place(call, name)
        if not self.op.supports_out:
            return
        moved = self.moved(call)
        expected = self.run(lambda: self.op(moved.input, *moved.args, **moved.kwargs))
        if expected.error is None and tensors(expected.result) and all(map(is_plain, tensors(expected.result))):
            for name in OUTPUTS:
                self.outputs(moved, expected, name)


def is_random(op: Any, call: Call) -> bool:
    try:
        return changes_with_seed(op, detached(call), on_cpu(op, detached(call)))
    except Exception:
        return False


def sweep(samples: int, device: str, op: Any, result: Result) -> Result:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    dtype = getattr(torch, result.dtype)
    backward = dtype in op.supported_backward_dtypes("cpu")
    calls = map(call_of, itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples))
    layouts = Sweep(op, result, device)
    try:
        for call in calls:
            if not is_random(op, call):
                layouts.sample(call)
    except Exception as error:
        result.unequal(f"the check failed: {failure(error)}")
        clear_errors()
    return result


def main() -> int:
    command = parser(__doc__, f"one entry in {SLICE}, by a hash of its name", samples=12)
    command.add_argument("--device", default=DEVICE, choices=[DEVICE, "cpu"])
    options = command.parse_args()
    chosen = swept("layouts", SLICE, options.slice, re.compile(options.only))
    results = run(chosen, partial(sweep, options.samples, options.device), options.jobs)
    bad = report(results, options.json)
    print(f"{len(results)} entries, {sum(result.samples for result in results)} calls; {len(bad)} entries differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
