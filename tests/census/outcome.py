"""What comes of a call, on the CPU and on the device, and whether both are the same."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samples import Call, Mover, detached, is_plain, tensors

DEVICE = os.environ.get("TEST_DEVICE", "openreg")
# The contents of the result are undefined by nature.
UNDEFINED = re.compile(r"^(new_)?empty(_like|_strided|_permuted)?$")


def device_module() -> Any:
    return torch.get_device_module(DEVICE)


@dataclass
class Cost:
    """What calls did: launches by tier, and waits of the host."""

    launches: dict[str, int] = field(default_factory=dict)
    waits: int = 0

    def measure(self, work: Callable[[], Any]) -> Any:
        before = device_module().launch_stats()
        try:
            return work()
        finally:
            after = device_module().launch_stats()
            for name, count in after.items():
                if name == "host_waits":
                    self.waits += count - before[name]
                else:
                    self.launches[name] = self.launches.get(name, 0) + count - before[name]


def with_gradients(op: Any, call: Call) -> tuple[Any, list[Any]]:
    """The results, and the gradients of what requires one."""
    inputs = list({id(t): t for t in tensors(tuple(call)) if t.requires_grad}.values())
    result = op(call.input, *call.args, **call.kwargs)
    if not inputs:
        return result, []
    outputs = [t for t in tensors(call.differentiable(result)) if t.requires_grad]
    if not outputs:
        return result, []
    seeds = [torch.ones_like(t) for t in outputs]
    gradients = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return result, [gradient for gradient in gradients if gradient is not None]


def on_cpu(op: Any, call: Call, seed: int = 0) -> Any:
    seed_all = torch.manual_seed
    seed_all(seed)
    # Random entries set a seed of their own before they draw.
    with patch.object(torch, "manual_seed", lambda _: seed_all(seed)):
        return with_gradients(op, Mover("cpu")(call))


def on_device(op: Any, call: Call, cost: Cost) -> Any:
    moved = Mover(DEVICE)(call)
    torch.manual_seed(0)
    torch.accelerator.synchronize()
    result = cost.measure(lambda: with_gradients(op, moved))
    torch.accelerator.synchronize()
    return result


class WaitsByOperator(TorchDispatchMode):
    """Counts which operators make the host wait."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cost = Cost()
        try:
            return cost.measure(lambda: func(*args, **(kwargs or {})))
        finally:
            if cost.waits:
                self.waits[str(func)] = self.waits.get(str(func), 0) + cost.waits


def waiting_operators(op: Any, call: Call) -> dict[str, int]:
    """The operators that make the host wait in a call, with how often.

    Some formulas for gradients ask for elements only where no mode is active, so that the mode that watches sees no
    operator wait: they count as "gradient". torch.tensor() copies a list to the device below the dispatcher: what waits
    without gradients, unseen, counts as "torch.tensor". What waits in its first call only counts as "first call".
    """
    moved = Mover(DEVICE)(call)
    torch.manual_seed(0)
    operators = WaitsByOperator()
    with operators:
        with_gradients(op, moved)
    if operators.waits:
        return operators.waits
    forward, whole = Cost(), Cost()
    on_device(op, detached(call), forward)
    on_device(op, call, whole)
    unseen = {"torch.tensor": forward.waits, "gradient": whole.waits - forward.waits}
    return {what: waits for what, waits in unseen.items() if waits > 0} or {"first call": 1}


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in a dtype that torch.testing compares."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64)
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.to(torch.float32)
    unsigned = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(unsigned[tensor.dtype]) if tensor.dtype in unsigned else tensor


def assert_same_values(got: torch.Tensor, expected: torch.Tensor) -> None:
    if is_plain(expected):
        got, expected = widened(got), widened(expected)
        if torch.equal(got, expected):
            return
    torch.testing.assert_close(got, expected, equal_nan=True)


def same_values(a: Any, b: Any) -> bool:
    try:
        for one, other in zip(tensors(a), tensors(b), strict=True):
            assert_same_values(one, other)
        if not tensors(a):
            torch.testing.assert_close(a, b, equal_nan=True)
    except (AssertionError, ValueError):
        return False
    return True


def changes_with_seed(op: Any, call: Call, expected: Any) -> bool:
    """Whether the CPU's result is random. One other seed may by chance give the same."""
    return any(not same_values(expected, on_cpu(op, call, seed)) for seed in range(1, 6))


def compare(name: str, expected: Any, got: Any, is_random: Callable[[], bool]) -> None:
    """Raises AssertionError where the device's result is not the CPU's."""
    pairs = list(zip(tensors(got), tensors(expected), strict=True))
    for g, e in pairs:
        assert g.device.type == DEVICE, f"the result is on {g.device}"
        assert g.layout == e.layout, f"layout {g.layout}, on the CPU {e.layout}"
        assert g.dtype == e.dtype, f"dtype {g.dtype}, on the CPU {e.dtype}"
        assert (g.is_conj(), g.is_neg()) == (e.is_conj(), e.is_neg()), "another conj or neg bit"
    try:
        for g, e in pairs:
            assert g.shape == e.shape, f"shape {tuple(g.shape)}, on the CPU {tuple(e.shape)}"
            if e.layout == torch.strided:
                assert g.stride() == e.stride(), f"strides {g.stride()}, on the CPU {e.stride()}"
            if not UNDEFINED.match(name):
                assert_same_values(g.cpu(), e)
        if not pairs:
            torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError:
        if not is_random():
            raise


def sentence(text: BaseException | str) -> str:
    """What was said, with one spelling of the types of tensors and of the device, which differ in names only."""
    of_the_device = rf"(?:CPU|{DEVICE}|{DEVICE.upper()})(\w+)Type"
    text = re.sub(rf"torch\.(?:{DEVICE}\.)?(\w+)Tensor|{of_the_device}", r"\1\2 tensor", str(text))
    text = re.sub(r"(Value: ).*", r"\1", text, flags=re.DOTALL)  # the schema parser prints the arguments
    return re.sub(rf"{DEVICE}(:0)?|cpu", "DEVICE", text).rstrip(".")


def clear_errors() -> None:
    """Takes what a failed sample may have left in the stream."""
    try:
        torch.accelerator.synchronize()
    except RuntimeError:
        torch.accelerator.synchronize()
