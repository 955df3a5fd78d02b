"""Calls for random programs: of operators that are given more than they use, of modules in training and in evaluation,
backward passes, and copies between the device and pinned memory.

What a call uses are whole tensors, or rows of `w`. Each is one bit of an integer, above those of the views of
`random_programs.py`, with whose steps these may be mixed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from random_programs import SIDE, TENSORS, Step, random_access

ROWS, COLUMNS = 4, 8
PASSES = 3  # forward passes whose backward pass may still come

_NAMES = (
    *("f0", "f1", "f2", "grad", "b", "c", "mean", "var", "saved", "inverse", "pinned0", "pinned1", "image", "small"),
    *(f"w{i}" for i in range(COLUMNS)),
    *(f"pass{i}" for i in range(PASSES)),
)
_FIRST_BIT = TENSORS * SIDE * SIDE


@dataclass(frozen=True)
class Form:
    """A kind of call: the statement, and the names of what it reads and writes, in which {f} and {g} stand for two of
    f0, f1 and f2, {p} for a pinned tensor, {v} for a vector, {n} for a small number, {row} for a row of `w`, and {i}
    for a pass. What is only given is not named."""

    text: str
    reads: str = ""
    writes: str = ""
    on_host: bool = False  # the host does it, without a wait


_BACKWARD = "kept.extend(aten.native_batch_norm_backward({args}, 1e-5, [True, True, True]))"
_FORWARD = "passes[{i}] = F.linear(F.batch_norm({f}, mean, var, b, c, {training}), w)"
FORMS = (
    # What is given and not used
    Form("kept.append(F.batch_norm({f}, mean, var, b, c))", "{f} mean var b c"),
    Form("kept.append(F.batch_norm({f}, mean, var, b, c, True))", "{f} mean var b c", "mean var"),
    Form(_BACKWARD.format(args="grad, {f}, b, mean, var, saved, inverse, True"), "grad {f} b saved inverse"),
    Form(_BACKWARD.format(args="grad, {f}, b, mean, var, saved, inverse, False"), "grad {f} b mean var"),
    Form("kept.append(torch.addmm({f}, {g}, w, beta=0))", "{g} w"),
    Form("kept.append(aten.avg_pool2d_backward(small, image, [2, 2], [2, 2], [0, 0], False, True, None))", "small"),
    Form(
        "kept.extend(aten.native_layer_norm_backward("
        "grad, {f}, [8], saved[:4, None], inverse[:4, None], b, c, [True] * 3))",
        "grad {f} saved inverse b",
    ),
    # Nothing to compute
    Form("kept.append(F.linear({f}[:0], w, b))"),
    Form("kept.append(F.embedding(none, w))"),
    Form("w.data.index_add_(0, none, {f}[:0])"),
    Form("w.data.index_put_((none,), b)"),
    # Elements that depend on values
    Form("kept.append(w[rows])", "w1 w3"),
    Form("w.data.index_fill_(0, rows, {n})", "", "w1 w3"),
    Form("kept.append(torch.where(mask, w, 0.0))", "w0 w1 w2 w3"),
    Form("w.data[{row}].fill_({n})", "", "w{row}"),
    Form("{v}.data.mul_(2).remainder_(5)", "{v}", "{v}"),
    # Passes of a small network
    Form(_FORWARD.replace("{training}", "True"), "{f} mean var w b c", "mean var pass{i}"),
    Form(_FORWARD.replace("{training}", "False"), "{f} mean var w b c", "pass{i}"),
    # Offloading
    Form("{p}.copy_({f}, non_blocking=True)", "{f}", "{p}"),
    Form("{f}.data.copy_({p}, non_blocking=True)", "{p}", "{f}"),
    Form("kept.append({p} * 1)", "{p}", on_host=True),
    Form("{p}.fill_({n})", "", "{p}", on_host=True),
    # Ordinary writes
    Form("{f}.data.fill_({n})", "", "{f}"),
    Form("w.data.fill_({n})", "", "w"),
    Form("{v}.data.fill_({n})", "", "{v}"),
    Form("image.fill_({n})", "", "image"),
)


def _bits(names: str) -> int:
    bits = 0
    for name in names.split():
        for each in [f"w{i}" for i in range(COLUMNS)] if name == "w" else [name]:
            bits |= 1 << (_FIRST_BIT + _NAMES.index(each))
    return bits


@dataclass(frozen=True)
class Call(Step):
    """A line with one of these calls."""

    code: str = ""
    read_bits: int = 0
    written_bits: int = 0
    on_host: bool = False

    @property
    def is_access(self) -> bool:
        return True

    @property
    def statement(self) -> str:
        return self.code


def call_of(form: Form, stream: int, **names: Any) -> Call:
    return Call(
        "pinned" if form.on_host else "call",
        stream,
        code=form.text.format(**names),
        read_bits=_bits(form.reads.format(**names)),
        written_bits=_bits(form.writes.format(**names)),
        on_host=form.on_host,
    )


@dataclass(frozen=True)
class Pass:
    """A forward pass."""

    stream: int
    input: str
    in_training: bool


class RandomCalls:
    """Makes the accesses of one program; a backward pass only after its forward pass, and on the same stream."""

    def __init__(self) -> None:
        self.passes: dict[int, Pass] = {}

    def __call__(self, rng: random.Random) -> Step:
        stream = rng.randrange(4)
        if rng.random() < 0.3:
            return random_access(rng)
        if self.passes and rng.random() < 0.25:
            return self.backward(rng)
        form = rng.choice(FORMS)
        f, g = rng.sample(["f0", "f1", "f2"], 2)
        i = rng.randrange(PASSES)
        if "pass{i}" in form.writes:
            self.passes[i] = Pass(stream, f, in_training="True" in form.text)
        return call_of(
            form,
            stream,
            f=f,
            g=g,
            i=i,
            p=rng.choice(["pinned0", "pinned1"]),
            v=rng.choice(["b", "c", "mean", "var", "saved", "inverse", "small"]),
            n=rng.randrange(1, 5),
            row=rng.randrange(COLUMNS),
        )

    def backward(self, rng: random.Random) -> Call:
        i = rng.choice(list(self.passes))
        of = self.passes.pop(i)
        # The network's input has no gradient, so `b`, which scales it, is not needed.
        reads = "{f} w pass{i}" if of.in_training else "{f} w pass{i} mean var"
        form = Form("kept.extend(torch.autograd.grad(passes.pop({i}).sum(), [w, b]))", reads, "pass{i}")
        return call_of(form, of.stream, i=i, f=of.input)


def names_of_calls(device: str) -> dict[str, Any]:
    """What the statements name, besides `kept`. Elements are small."""

    def make(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return (torch.arange(torch.Size(sizes).numel()).view(sizes) % 7 - 3).to(device, dtype)

    names: dict[str, Any] = {name: make(ROWS, COLUMNS) for name in ("f0", "f1", "f2", "grad")}
    names.update((name, make(COLUMNS)) for name in ("c", "mean", "saved"))
    names.update((name, make(COLUMNS).abs() + 1) for name in ("var", "inverse"))
    names["b"] = (make(COLUMNS).abs() + 1).requires_grad_()
    names["w"] = make(COLUMNS, COLUMNS).requires_grad_()
    names["image"], names["small"] = make(1, 2, 4, 4), make(1, 2, 2, 2)
    names.update((f"pinned{i}", torch.zeros(ROWS, COLUMNS, pin_memory=device != "cpu")) for i in range(2))
    names["none"] = torch.zeros(0, dtype=torch.long, device=device)
    names["rows"] = torch.tensor([1, 3]).to(device)
    names["mask"] = (torch.arange(COLUMNS) < 4).to(device)[:, None]
    return {**names, "F": F, "aten": torch.ops.aten, "passes": {}}
