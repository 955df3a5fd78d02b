"""Programs made at random from operations that order work, and how to see where compiled code does each of them.

Every value that a program computes reads a clock, a tensor that each operation that orders work advances. So the values
say between which of these operations every kernel ran, and nothing depends on time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.variables import streams

SHAPE = (4, 8)
ORDERING = (
    "record_event",
    "wait_event",
    "wait_stream",
    "synchronize_event",
    "synchronize_device",
    "synchronize_stream",
)


class Clock:
    """Tensors on every device and on the host that say how many operations that order work have been done."""

    def __init__(self) -> None:
        self.devices = [torch.zeros(SHAPE, device=f"openreg:{index}") for index in range(2)]
        self.host = torch.zeros(SHAPE).pin_memory()
        self.state = torch.zeros(SHAPE, device="openreg:0")
        self.log: list[tuple[Any, ...]] = []

    def reset(self) -> None:
        for tensor in (*self.devices, self.host, self.state):
            tensor.zero_()
        self.log.clear()
        synchronize()

    def advance(self, *operation: Any) -> None:
        """Notes an operation, and what the program has written so far."""
        synchronize()
        self.log.append((*operation, self.state[0, 0].item()))
        for tensor in (*self.devices, self.host):
            tensor.data.add_(1)  # not a change that autograd has to know: no gradient depends on a clock
        synchronize()


def synchronize() -> None:
    for index in range(2):
        torch.openreg.synchronize(index)


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Within it, the operations of compiled programs advance the clock."""
    library = torch.library.Library("streams", "IMPL")

    def watch(name: str) -> None:
        original = getattr(streams, name)._init_fn

        def operation(*arguments: Any) -> None:
            original(*arguments)
            clock.advance(name)

        library.impl(name, operation, "CompositeExplicitAutograd", allow_override=True)

    for name in ORDERING:
        watch(name)
    _current.append(clock)
    try:
        yield
    finally:
        _current.pop()
        library._destroy()


_current: list[Clock] = []


@torch.library.custom_op("openreg_order::mark", mutates_args=())
def mark(number: int) -> None:
    """An operator without tensors."""
    if _current:
        _current[-1].advance("mark", number)


@mark.register_fake
def _(number: int) -> None:
    return None


@torch.library.custom_op("openreg_order::add_", mutates_args=("x",))
def add_(x: torch.Tensor, y: torch.Tensor) -> None:
    """An operator that changes its argument."""
    x.add_(y)


torch.fx.node.has_side_effect(torch.ops.openreg_order.mark.default)


class Program:
    """The text of a function of the clock's tensors, a tensor `w` and the objects that it may use."""

    def __init__(self, seed: int, *, training: bool = False) -> None:
        self.random = random.Random(seed)
        self.training = training
        self.lines: list[str] = []
        self.values: list[tuple[str, str]] = []  # name and device, of shape SHAPE
        self.indent = 1
        self.recorded: set[str] = set()
        self.mutated = False
        self.device = 0
        for _ in range(2):
            self.compute("w")
        for _ in range(self.random.randint(3, 9)):
            self.statement()
        self.compute()
        outputs = self.random.sample(self.values, max(1, len(self.values) // 2))
        outputs.append(self.values[-1])
        self.write(f"return {', '.join(name for name, _ in outputs)},")

    @property
    def text(self) -> str:
        return "def program(w, matrix, c0, c1, host, state, side, first, second):\n" + "\n".join(self.lines) + "\n"

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        names: dict[str, Any] = {"torch": torch, "mark": mark, "add_": add_}
        exec(compile(self.text, f"<program {id(self)}>", "exec"), names)
        function: Callable[..., tuple[torch.Tensor, ...]] = names["program"]
        return function

    def write(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def statement(self) -> None:
        kinds = [self.compute] * 4 + [self.order] * 6 + [self.move, self.on_the_host, self.in_place, self.on_the_side]
        if not self.training:
            kinds += [self.item, self.input_mutation]
        self.random.choice(kinds)()

    def add(self, expression: str, device: str) -> None:
        name = f"v{len(self.values)}"
        self.write(f"{name} = {expression}")
        self.values.append((name, device))

    def pick(self, device: str = "c0") -> str:
        names = [name for name, where in self.values if where == device]
        return self.random.choice(names)

    def compute(self, operand: str | None = None) -> None:
        x = operand or self.pick()
        forms = ["{} * 0.5 + c0", "(c0 - {}) * 0.25", "{}.sum(0) * 0.125 + c0", "torch.cat(({}[:2], c0[2:]))"]
        forms += ["{}.flip(0) + c0", "{} @ matrix + c0", "{}.t().contiguous().t() + c0"]
        if not self.training:
            forms += ["torch.relu({}) + c0", "c0 + {}.amax()", "({} @ c0.t()) @ c0 * 0.01"]
        self.add(self.random.choice(forms).format(x), "c0")

    def move(self) -> None:
        self.add(f"{self.pick()}.to('openreg:1'{self.random.choice(['', ', non_blocking=True'])}) + c1", "c1")
        self.add(f"({self.pick('c1')} * 0.5 + c1).to('openreg:0') + c0", "c0")

    def on_the_host(self) -> None:
        self.add(f"{self.pick()}.cpu() + host", "host")
        self.add(f"{self.pick('host')} * 0.5 + host", "host")

    def item(self) -> None:
        self.add(f"{self.pick()} * 0.5 + {self.pick()}.sum().item() * 0.01 + c0", "c0")

    def in_place(self) -> None:
        x = self.pick()
        self.write(self.random.choice([f"{x}.add_(c0)", f"{x}.mul_(0.5).add_(c0)", f"add_({x}, c0)"]))

    def input_mutation(self) -> None:
        self.write(self.random.choice(["state.add_(c0)", f"state.copy_({self.pick()})"]))
        self.mutated = True

    def order(self) -> None:
        forms = ["torch.openreg.synchronize()", "torch.accelerator.synchronize()", "side.synchronize()"]
        forms += [
            "side.wait_stream(torch.openreg.current_stream())",
            "torch.openreg.current_stream().wait_stream(side)",
        ]
        forms += [f"mark({self.random.randint(0, 99)})"]
        for event in ("first", "second"):
            if not self.mutated:  # PyTorch refuses to record an event after a change of an input
                forms += [f"{event}.record()", f"torch.openreg.current_stream().record_event({event})"]
            forms += [f"{event}.wait()", f"side.wait_event({event})", f"{event}.synchronize()"]
        self.write(self.random.choice(forms))

    def on_the_side(self) -> None:
        self.write("side.wait_stream(torch.openreg.current_stream())")
        self.write("with torch.openreg.stream(side):")
        self.indent += 1
        for _ in range(self.random.randint(1, 3)):
            self.compute()
        self.indent -= 1
        self.write("torch.openreg.current_stream().wait_stream(side)")
