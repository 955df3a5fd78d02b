"""Which elements an operator reads and writes, found on the CPU: elements are changed before a call, and results are
compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from recorded_calls import OperatorCall, copied
from samples import tensors

GROUPS = 8  # of the elements of an operand that are changed together


@dataclass
class Found:
    """What a call does with one operand. Elements are numbered in the order of their indices."""

    read: list[int]  # one element of each group that is read
    unread: list[int]
    written: list[int]  # all that are
    unwritten: list[int]


class Outcome:
    """The results of a call, and its operands after it; or that it raises."""

    def __init__(self, call: OperatorCall) -> None:
        args, kwargs = copied((call.args, call.kwargs), "cpu")
        self.operands = OperatorCall(call.op, args, kwargs).named_operands()
        self.error = ""
        self.results: list[torch.Tensor] = []
        self.numbers: list[Any] = []
        given = {id(tensor) for tensor in self.operands.values()}
        try:
            result = call.op(*args, **kwargs)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        else:
            self.results = [tensor for tensor in tensors(result) if id(tensor) not in given]
            self.numbers = [leaf for leaf in tree_leaves(result) if isinstance(leaf, (int, float, bool))]

    def has_nan(self) -> bool:
        return any(bool(torch.isnan(t).any()) for t in self.results if t.is_floating_point() or t.is_complex())

    def differs(self, other: Outcome, but: str, written: torch.Tensor | None) -> bool:
        """Whether something else came of the other call. Of the operand `but`, only written elements count."""
        if self.error or other.error:
            return self.error != other.error
        if self.numbers != other.numbers or len(self.results) != len(other.results):
            return True
        if not all(map(same, self.results, other.results)):
            return True
        for name, tensor in self.operands.items():
            a, b = tensor, other.operands[name]
            if name == but:
                if written is None:
                    continue
                a, b = a[written], b[written]
            if not same(a, b):
                return True
        return False


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point() or a.is_complex():
        return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return torch.equal(a, b)


def others(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What goes in the place of its elements."""
    if tensor.is_floating_point() or tensor.is_complex():
        if tensor.dtype.itemsize == 1:  # float8
            return [torch.zeros_like(tensor), torch.ones_like(tensor)]
        nan = torch.full_like(tensor, float("nan"))
        return [nan, tensor + 1.5, -tensor - 1, torch.full_like(tensor, 1e3), torch.zeros_like(tensor)]
    if tensor.dtype is torch.bool:
        return [~tensor]
    least, greatest = tensor.min(), tensor.max()
    values = [torch.full_like(tensor, each) for each in (least.item(), greatest.item(), 0)]
    if least == greatest:
        values.append(tensor + 1)
    return values


def groups(tensor: torch.Tensor) -> list[list[int]]:
    count = min(tensor.numel(), GROUPS)
    return [list(each) for each in torch.arange(tensor.numel()).tensor_split(count)] if count else []


def overlaps_itself(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def with_changed(call: OperatorCall, operand: torch.Tensor, elements: list[int], values: torch.Tensor) -> OperatorCall:
    """The call with other values of these elements."""
    name = next(name for name, tensor in call.named_operands().items() if tensor is operand)
    args, kwargs = copied((call.args, call.kwargs), "cpu")
    changed = OperatorCall(call.op, args, kwargs, call.change)
    target = changed.named_operands()[name]
    mask = torch.zeros(operand.numel(), dtype=torch.bool)
    mask[torch.tensor(elements)] = True
    mask = mask.view(operand.shape)
    if overlaps_itself(target):  # elements that are one in memory
        for index in mask.nonzero().tolist():
            target[tuple(index)] = values[tuple(index)]
    else:
        target[mask] = values[mask]
    return changed


def found_uses(call: OperatorCall) -> dict[str, Found] | None:
    """Of each operand. None: the call raises, or its results differ from call to call, or have NaN, which no change
    shows in."""
    base = Outcome(call)
    if base.error or base.has_nan() or base.differs(Outcome(call), "", None):
        return None
    found = {}
    for name, operand in call.named_operands().items():
        everything = list(range(operand.numel()))
        written = ~same_elements(base.operands[name], operand)
        for values in others(operand):
            changed = with_changed(call, operand, everything, values)
            before = changed.named_operands()[name]
            after = Outcome(changed)
            if after.error:
                continue
            written |= ~same_elements(after.operands[name], before)
        uses = Found([], [], *((at.flatten().nonzero().flatten().tolist()) for at in (written, ~written)))
        if not uses.unwritten:  # whatever is read as well
            found[name] = uses
            continue
        for group in groups(operand):
            outcomes = (Outcome(with_changed(call, operand, group, values)) for values in others(operand))
            if call.has_no_elements():  # the CPU checks the range also of indices that nothing is taken by
                outcomes = (each for each in outcomes if not each.error)
            is_read = any(base.differs(each, name, written) for each in outcomes)
            (uses.read if is_read else uses.unread).append(int(group[0]))
        found[name] = uses
    return found


def same_elements(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    equal = a == b
    if a.is_floating_point() or a.is_complex():
        equal |= torch.isnan(a) & torch.isnan(b)
    return equal
