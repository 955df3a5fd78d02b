"""What a random program computes: on the CPU, step by step, in the order of the program or in another one."""

from __future__ import annotations

import itertools

import torch
from random_programs import SIDE, TENSORS, Order, Step, View, first_race


def initial_tensors() -> list[torch.Tensor]:
    count = SIDE * SIDE
    return [torch.arange(i * count, (i + 1) * count).view(SIDE, SIDE) for i in range(1, TENSORS + 1)]


def order_of_latest(steps: list[Step]) -> list[int]:
    """The order in which accesses run in the schedule `latest`, if the host waits for the stream of the last step, and
    then for the device. The last access is the only one that lacks an order with others.

    What has run when an access is submitted is what a host has waited for: no more than what happens before it. The
    host's wait then runs the rest of that. So what races with the access runs after it. Orders among the others do not
    matter, because those that conflict have one.
    """
    last = len(steps) - 1
    order = Order()
    for number, step in enumerate(steps[:last]):
        order.run(step, number)
    before = order.before(steps[last].stream)
    others = [i for i in range(last) if steps[i].is_access]
    early = [i for i in others if steps[i].kind == "host" or before >> i & 1]
    return [*early, last, *(i for i in others if i not in early)]


def numbers(steps: list[Step], order: list[int]) -> list[torch.Tensor]:
    """The tensors at the end, and what the steps have kept, if the CPU runs the accesses in this order."""
    tensors = {f"x{i}": tensor for i, tensor in enumerate(initial_tensors())}
    kept: dict[int, list[torch.Tensor]] = {i: [] for i in range(len(steps))}
    for i in order:
        exec(steps[i].statement, {"torch": torch, "kept": kept[i], **tensors})
    return [*tensors.values(), *itertools.chain(*kept.values())]


def numbers_must_differ(steps: list[Step]) -> bool:
    """Whether the numbers show for certain that the last access, which races, ran before those with which it has no
    order: for one of those, the two are

    - a read after a write: it reads what was there before;
    - a write after a read that keeps what it reads: that reads what is written;
    - two writes, of which one fills: one of them is lost, and it is not the same one.

    Each step has an operand of its own, so other numbers are not equal by chance. But two additions commute, a copy can
    write what was there already, and what another operator makes of what it reads can be overwritten, also by itself,
    if what it writes overlaps itself.
    """
    last, racing = first_race(steps)
    second = steps[last]
    copies = any(steps[i].kind == "copy" for i in racing)
    for first in (steps[i] for i in racing):
        fills = "fill" in (first.kind, second.kind)
        if overlap(first.writes, second.reads) and not copies and not overlaps_itself(second.writes):
            return True
        if overlap(first.reads, second.writes) and first.kind in ("sum", "clone") and second.kind != "copy":
            return True
        if overlap(first.writes, second.writes) and fills and not copies and second.kind != "copy":
            return True
    return False


def overlap(a: View | None, b: View | None) -> bool:
    return a is not None and b is not None and a.elements & b.elements != 0


def overlaps_itself(view: View | None) -> bool:
    return view is not None and view.elements.bit_count() < view.numbers.numel()
