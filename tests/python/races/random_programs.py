"""Random programs of kernels on several streams, with all waits that they need; and which accesses lack an order.

The reference knows nothing of the detector: orders are sets of accesses, and memory is sets of elements. Both are
bits of integers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

STREAMS = 4
EVENTS = 5
TENSORS = 3
SIDE = 8  # tensors have SIDE rows and columns

# Views of a square matrix, by the shape that they have. Views of one shape can be operands of one kernel.
VIEWS: dict[int, list[str]] = {
    SIDE: [
        *(f"[{i}]" for i in range(SIDE)),
        *(f"[:, {i}]" for i in range(SIDE)),
        *(f".flatten()[{i} : {i + SIDE}]" for i in (3, 12, 21, 30, 47)),
        *(f".flatten()[{i} :: 3][:{SIDE}]" for i in (0, 1, 2, 13, 20, 31)),
        ".diagonal()",
        ".t()[2]",
        ".flatten()[::9][:8]",
    ],
    16: [
        "[:4, :4]",
        "[:4, 4:]",
        "[4:, :4]",
        "[2:6, 2:6]",
        "[::2, ::2]",
        "[1::2, ::2]",
        "[::2, 1::2]",
        "[4:, 4:].t()",
        "[::2, :4]",
        "[:4, 1::2]",
        ".flatten()[5:50].unfold(0, 4, 11)",
        ".flatten().as_strided((4, 4), (3, 1), 7)",
    ],
    64: ["", ".t()"],
}
_ARANGE = torch.arange(SIDE * SIDE).view(SIDE, SIDE)


@dataclass(frozen=True)
class View:
    """A part of a tensor."""

    tensor: int
    code: str

    @property
    def text(self) -> str:
        return f"x{self.tensor}{self.code}"

    @property
    def numbers(self) -> torch.Tensor:
        """Where in the tensor's memory its elements are."""
        return eval(f"x{self.code}", {"x": _ARANGE})

    @property
    def elements(self) -> int:
        """One bit for each element of all tensors' memory."""
        if self.code not in _BITS:
            _BITS[self.code] = sum(1 << i for i in set(self.numbers.flatten().tolist()))
        return _BITS[self.code] << (self.tensor * SIDE * SIDE)


_BITS: dict[str, int] = {}


@dataclass(frozen=True)
class Step:
    """A line of a program. Which of the fields count depends on the kind."""

    kind: str
    stream: int = 0
    other: int = 0  # the stream or event that is waited for
    writes: View | None = None
    reads: View | None = None
    operand: int = 0  # a number that no other step has, so that results show which steps came before

    @property
    def is_access(self) -> bool:
        return self.writes is not None or self.reads is not None

    @property
    def read_bits(self) -> int:
        return self.reads.elements if self.reads is not None else 0

    @property
    def written_bits(self) -> int:
        return self.writes.elements if self.writes is not None else 0

    @property
    def is_wait(self) -> bool:
        return self.kind in _WAITS

    @property
    def statement(self) -> str:
        return _TEXTS[self.kind].format(
            s=f"s[{self.stream}]",
            other=self.other,
            w=self.writes and self.writes.text,
            r=self.reads and self.reads.text,
            n=self.operand,
        )

    @property
    def text(self) -> str:
        return f"with on(s[{self.stream}]): {self.statement}" if self.is_access else self.statement


_WAITS = {
    "wait_stream": "{s}.wait_stream(s[{other}])",
    "wait_event": "{s}.wait_event(e[{other}])",
    "synchronize": "s[{other}].synchronize()",
    "event_synchronize": "e[{other}].synchronize()",
    "query": "poll(e[{other}])",
    "query_stream": "poll(s[{other}])",
    "device": "torch.openreg.synchronize()",
}
_KERNELS = {
    "fill": "{w}.fill_({n})",
    "add": "{w}.add_({n})",
    "add_other": "{w}.add_({r}, alpha={n})",
    "copy": "{w}.copy_({r})",
    "sum": "kept.append({r}.sum())",
    "clone": "kept.append({r}.clone())",
}
_TEXTS = {
    **_WAITS,
    **_KERNELS,
    "record": "e[{other}].record({s})",
    "host": "kept.append(torch.tensor({r}.tolist()))",
}


@dataclass
class Order:
    """Which accesses are ordered: of each stream, event and of the host, those that happened before."""

    streams: list[int] = field(default_factory=lambda: [0] * STREAMS)
    events: list[int] = field(default_factory=lambda: [0] * EVENTS)
    seen: int = 0  # by the host

    def before(self, stream: int) -> int:
        return self.streams[stream] | self.seen

    def before_access(self, step: Step) -> int:
        return self.seen if step.kind == "pinned" else self.before(step.stream)

    def run(self, step: Step, number: int) -> None:
        match step.kind:
            case "wait_stream":
                self.streams[step.stream] |= self.before(step.other)
            case "wait_event":
                self.streams[step.stream] |= self.events[step.other]
            case "synchronize" | "query_stream":
                self.seen |= self.streams[step.other]
            case "event_synchronize" | "query":
                self.seen |= self.events[step.other]
            case "device":
                for stream in self.streams:
                    self.seen |= stream
            case "record":
                self.events[step.other] = self.before(step.stream)
            case "host":
                self.seen |= self.streams[step.stream]
            case "pinned":  # the host uses pinned memory, without a wait
                pass
            case _:
                self.streams[step.stream] |= 1 << number


def conflicts(a: Step, b: Step) -> bool:
    """Whether two accesses have an element in common that one of them writes."""
    return bool(a.written_bits & (b.written_bits | b.read_bits) or b.written_bits & a.read_bits)


def unordered(steps: list[Step], number: int, before: int) -> list[int]:
    """The earlier accesses that conflict with that one, and are not among those before it."""
    earlier = (i for i in range(number) if steps[i].is_access and steps[i].kind not in ("host", "pinned"))
    return [i for i in earlier if not before >> i & 1 and conflicts(steps[i], steps[number])]


def first_race(steps: list[Step]) -> tuple[int, list[int]] | None:
    """The first access that lacks an order, and those with which it has none."""
    order = Order()
    for number, step in enumerate(steps):
        if step.is_access and (racing := unordered(steps, number, order.before_access(step))):
            return number, racing
        order.run(step, number)
    return None


def random_access(rng: random.Random) -> Step:
    stream = rng.randrange(STREAMS)
    views = rng.choice(list(VIEWS.values()))

    def view(tensor: int) -> View:
        return View(tensor, rng.choice(views))

    one, other = rng.sample(range(TENSORS), 2)
    kind = rng.choice([*_KERNELS, "host"])
    reads = view(other) if kind in ("add_other", "copy", "sum", "clone", "host") else None
    writes = view(one) if kind in ("fill", "add", "add_other", "copy") else None
    return Step(kind, stream, writes=writes, reads=reads, operand=rng.randrange(1, 1 << 40, 2))


def order_for(rng: random.Random, order: Order, access: int, after: int, stream: int) -> list[Step]:
    """Steps after which the access on the stream `after` happens before what comes on the other stream."""
    known = [i for i, event in enumerate(order.events) if event >> access & 1]
    event = rng.randrange(EVENTS)
    ways = [
        [Step("wait_stream", stream, after)],
        [Step("wait_stream", stream, after)],
        [Step("record", after, event), Step("wait_event", stream, event)],
        [Step("record", after, event), Step("event_synchronize", other=event)],
        [Step("record", after, event), Step("query", other=event)],
        [Step("synchronize", other=after)],
        [Step("query_stream", other=after)],
        [Step("device")],
    ]
    if known:
        ways += [[Step("wait_event", stream, rng.choice(known))]] * 6
    return rng.choice(ways)


def random_program(
    rng: random.Random, accesses: int, make: Callable[[random.Random], Step] = random_access
) -> list[Step]:
    """A program in which all accesses are ordered. `make` makes the next one."""
    steps: list[Step] = []
    order = Order()

    def add(step: Step) -> None:
        order.run(step, len(steps))
        steps.append(step)

    for _ in range(accesses):
        access = make(rng)
        while racing := unordered([*steps, access], len(steps), order.before_access(access)):
            first = rng.choice(racing)
            for step in order_for(rng, order, first, steps[first].stream, access.stream):
                add(step)
        add(access)
        if rng.random() < 0.4:
            add(Step("record", access.stream, rng.randrange(EVENTS)))
        if rng.random() < 0.1:
            add(Step("wait_event", rng.randrange(STREAMS), rng.randrange(EVENTS)))
    return steps


def broken(rng: random.Random, steps: list[Step]) -> Iterator[list[Step]]:
    """Programs that lack one wait, or record one event too early, and have a race for that reason."""
    places = [i for i, step in enumerate(steps) if step.is_wait or step.kind == "record"]
    rng.shuffle(places)
    for place in places:
        rest = [*steps[:place], *steps[place + 1 :]]
        if steps[place].kind == "record":
            rest.insert(rng.randrange(max(place - 4, 0), place + 1), steps[place])
        if first_race(rest) is not None:
            yield rest


def source_of(steps: list[Step]) -> str:
    """The program, one step on a line: step i is on line i + 1."""
    return "\n".join(step.text for step in steps)
