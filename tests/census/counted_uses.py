"""What the race detector counts as used by a call: the call is made without an order after an access to an operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from found_uses import Found
from outcome import DEVICE, device_module
from recorded_calls import OperatorCall, copied


def whole(operand: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that it lies in."""
    return torch.empty(0, dtype=torch.uint8, device=operand.device).set_(operand.untyped_storage())


def one(operand: torch.Tensor, element: int) -> torch.Tensor:
    """A view of one element."""
    offset = operand.storage_offset()
    for size, stride in zip(reversed(operand.shape), reversed(operand.stride()), strict=True):
        element, index = divmod(element, size)
        offset += index * stride
    return operand.as_strided((), (), offset)


def shares_memory(operand: torch.Tensor) -> bool:
    """Whether elements share memory, so that one that is not used may be one that is."""
    return any(stride == 0 and size > 1 for size, stride in zip(operand.shape, operand.stride(), strict=True))


class Probe:
    """Makes a call on another stream than what comes before it."""

    def __init__(self) -> None:
        self.side = torch.Stream(DEVICE)

    def report(self, call: OperatorCall, name: str, before: Callable[[torch.Tensor], Any]) -> str:
        """What the detector says; empty if nothing. `before`: what is done with the operand."""
        args, kwargs = copied((call.args, call.kwargs), DEVICE)
        there = OperatorCall(call.op, args, kwargs)
        torch.accelerator.synchronize()
        before(there.named_operands()[name])
        try:
            with self.side:
                call.op(*args, **kwargs)
        except device_module().UnsynchronizedAccessError as error:
            return str(error).splitlines()[2].strip()
        finally:
            torch.accelerator.synchronize()
        return ""

    def differences(self, call: OperatorCall, name: str, found: Found) -> list[str]:
        """How what is counted of an operand differs from what was found: "reads none" if it is counted as read, though
        no element is; "reads some", "writes none", "writes some" alike; "not counted" if it is used."""

        def write(operand: torch.Tensor) -> None:
            memory = whole(operand)
            memory.copy_(memory.clone())

        def write_of(element: int) -> Callable[[torch.Tensor], Any]:
            def write(operand: torch.Tensor) -> None:
                target = one(operand, element)
                target.copy_(target.clone())

            return write

        wrong: list[str] = []
        if not found.written and not call.has_no_elements() and name in call.written_operands():
            return wrong  # it may be written with what it holds
        uses_any = bool(found.read or found.written)
        text = self.report(call, name, write)
        if bool(text) != uses_any:
            wrong.append(f"reads none: {text}" if text else "not counted as read or written")
        unused = [element for element in found.unread if element in set(found.unwritten)]
        if uses_any and unused and not shares_memory(call.named_operands()[name]):
            if text := self.report(call, name, write_of(unused[len(unused) // 2])):
                wrong.append(f"reads some: {text}")
        text = self.report(call, name, lambda operand: whole(operand).clone())
        if bool(text) != bool(found.written):
            wrong.append(f"writes none: {text}" if text else "not counted as written")
        if found.written and found.unwritten:
            element = found.unwritten[len(found.unwritten) // 2]
            if text := self.report(call, name, lambda operand: one(operand, element).clone()):
                wrong.append(f"writes some: {text}")
        return wrong
