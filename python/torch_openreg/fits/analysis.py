"""From the log of a device to its report."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import torch

from .. import _C
from .kinds import BACKWARD, FORWARD, OPTIMIZER, OUTSIDE, PHASES, Kinds
from .log import Before, Log
from .modules import OPTIMIZER as OPTIMIZER_TAG, Modules
from .report import KINDS, Curve, DeviceReport, Moment, OutOfMemory

PLACES = 480
"""Places of a curve."""


def analyse(
    device: int,
    modules: Modules,
    before: Before,
    marks: list[tuple[int, int, int, str, str]],
    steps: list[int] | None,
    total: int,
    failed: bool,
) -> DeviceReport | None:
    """The report of a device; None if nothing was allocated there.

    Args:
        device: its index.
        modules: those that ran.
        before: what the device held when the recording began.
        marks: see `Owners`.
        steps: the length of the log at the end of each step; None: the program has no optimizer.
        total: the device's memory.
        failed: whether the failure of an allocation ended the program, so that the moment of the failure is described.
    """
    log = Log(device, before)
    if len(log.size) == 0 and not log.failures():
        return None
    ends = None if steps is None else [length + log.first for length in steps]
    kinds = Kinds(log, modules, [tuple(mark[1:]) for mark in marks if mark[0] == device])  # type: ignore[misc]
    allocated, reserved = log.deltas().cumsum(0), log.reserved()
    describe = _describe(log, kinds, ends)
    failures = [
        OutOfMemory(size, int(allocated[event]), int(reserved[event]), describe(event))
        for event, size in log.failures()
    ]
    at = log.failures()[-1][0] if failed and failures else int(allocated.argmax())
    held = log.held_at(at).tolist()
    by_kind, by_module, by_line = _sums(log, kinds, held)
    return DeviceReport(
        index=device,
        total=total,
        allocated=int(allocated.max()),
        reserved=int(reserved.max()),
        at=describe(at),
        held=int(allocated[at]),
        kinds={kind: by_kind[kind] for kind in KINDS if by_kind[kind]},
        modules=dict(sorted(by_module.items(), key=lambda item: -sum(item[1].values()))),
        lines=dict(by_line.most_common()),
        curve=_curve(log, kinds, allocated, reserved, ends or []),
        allocations=len(log.size) - len(before.blocks),
        failures=failures,
    )


def _describe(log: Log, kinds: Kinds, steps: list[int] | None) -> Callable[[int], Moment]:
    def describe(event: int) -> Moment:
        """What ran at an allocation, or at one that failed."""
        block = int(log.block[event])
        step = None if steps is None else bisect_left(steps, event + 1) + 1
        if block >= 0:
            phase = PHASES[int(kinds.phase[block])]
            return Moment(step, phase, kinds.name(int(kinds.module_tag[block])), _line(int(kinds.line[block])))
        # A failed allocation: like the last one of the same pass.
        before = (log.allocations < event).nonzero().flatten()
        same = before[log.backward[before] == log.every_backward[event]]
        tag = int(log.every_tag[event])
        if log.every_backward[event] and len(same):
            last = int(same[-1])
            return Moment(step, PHASES[BACKWARD], kinds.name(int(kinds.module_tag[last])), _line(int(kinds.line[last])))
        module = kinds.name(tag)
        code = OPTIMIZER if tag == OPTIMIZER_TAG else FORWARD if module else OUTSIDE
        return Moment(step, PHASES[code], module, _line(int(log.every_line[event])))

    return describe


def _line(number: int) -> str:
    return relative(_C.line_of_program(number))


def relative(line: str) -> str:
    """A line of the program, with its file relative to the current folder if it lies in it."""
    return line.removeprefix(f"{Path.cwd()}/")


def _sums(log: Log, kinds: Kinds, held: list[int]) -> tuple[Counter[str], dict[str, dict[str, int]], Counter[str]]:
    """The bytes of the blocks by kind, by module and kind, and by line."""
    by_kind: Counter[str] = Counter()
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    by_line: Counter[int] = Counter()
    for block in held:
        size, kind = int(log.size[block]), KINDS[int(kinds.kind[block])]
        by_kind[kind] += size
        by_module[kinds.module(block)][kind] += size
        by_line[int(kinds.line[block])] += size
    lines: Counter[str] = Counter()
    for number, size in by_line.items():
        lines[_line(number)] += size
    return by_kind, {name: dict(sizes) for name, sizes in by_module.items()}, lines


def _curve(log: Log, kinds: Kinds, allocated: torch.Tensor, reserved: torch.Tensor, steps: list[int]) -> Curve:
    # One place for each part of the run: where it holds most.
    width = max(1, -(-log.events // PLACES))
    count = -(-log.events // width)
    padded = torch.full((count * width,), -1)
    padded[: log.events] = allocated
    at = padded.view(count, width).argmax(1) + torch.arange(count) * width
    deltas = log.deltas()
    of_event = torch.full((log.events,), -1)
    known = log.block >= 0
    of_event[known] = kinds.kind[log.block[known]]
    curves: dict[str, list[int]] = {}
    for code, kind in enumerate(KINDS):
        if bool((kinds.kind == code).any()):
            curves[kind] = torch.where(of_event == code, deltas, 0).cumsum(0)[at].tolist()
    return Curve(curves, reserved[at].tolist(), [min(length // width, count - 1) for length in steps])
