"""Random programs, made beside their results on the CPU."""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import dataclass, field
from typing import Any

import torch

from operations import DTYPES, MODULUS, OPERATIONS, Numbers, Operation, apply

DEVICE = os.environ.get("TEST_DEVICE", "openreg")
STREAMS = 3  # of each device
MOST_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class Step:
    """`kind`: "new", "operation", "move", "through the host", "stream", "wait", "read", "drop" or "fail"."""

    kind: str
    name: str = ""  # of an operation; how to wait, to copy, or to ask for a failure
    inputs: tuple[int, ...] = ()  # numbers of variables
    numbers: Numbers = ()
    result: int = -1
    expected: Any = None  # what is read; the error of an operation that is refused

    def __str__(self) -> str:
        target = f"v{self.result} = " if self.result >= 0 else ""
        inputs = ", ".join(f"v{number}" for number in self.inputs)
        error = f"  # {type(self.expected).__name__}" if isinstance(self.expected, Exception) else ""
        return (
            f"{target}{self.kind} {self.name}({inputs}{'; ' if self.numbers else ''}{str(self.numbers)[1:-1]}){error}"
        )


@dataclass
class Program:
    seed: int
    devices: int
    steps: list[Step] = field(default_factory=list)
    values: dict[int, torch.Tensor] = field(default_factory=dict)  # on the CPU, of what has not been dropped

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}:", *(f"  {step}" for step in self.steps)])


class Author:
    """Writes a program, and runs it on the CPU meanwhile: there, streams and devices mean nothing."""

    operations: tuple[Operation, ...] = OPERATIONS

    def __init__(self, seed: int, devices: int, fails: bool, waits_for_devices: bool) -> None:
        self.fails = fails
        self.waits = ["stream", "event", "query"] + ["device"] * waits_for_devices
        self.rng = random.Random(seed)
        self.program = Program(seed, devices)
        self.device_of: dict[int, int] = {}
        self.device = 0
        self.next = 0

    def write(self) -> Program:
        for _ in range(3):
            self.new()
        kinds = {
            self.operation: 60,
            self.new: 4,
            self.move: 5 if self.program.devices > 1 else 0,
            self.through_the_host: 6,
            self.stream: 14,
            self.wait: 4,
            self.read: 3,
            self.drop: 8,
            self.fail: 3 if self.fails else 0,
        }
        for write_step in self.rng.choices(list(kinds), list(kinds.values()), k=self.rng.randrange(20, 61)):
            write_step()
        return self.program

    def here(self) -> list[int]:
        return [number for number in self.program.values if self.device_of[number] == self.device]

    def add(self, value: torch.Tensor, device: int, **step: Any) -> None:
        self.program.steps.append(Step(result=self.next, **step))
        self.program.values[self.next] = value
        self.device_of[self.next] = device
        self.next += 1

    def new(self) -> None:
        large = self.rng.random() < 0.2
        shape = tuple(
            self.rng.choice((150, 64, 256) if large else (1, 2, 3, 5, 8))
            for _ in range(self.rng.choice((1, 2, 2) if large else (0, 1, 2, 3)))
        )
        dtype = self.rng.choice(DTYPES)
        self.add(new_tensor(shape, dtype), self.device, kind="new", numbers=(shape, dtype))

    def operation(self) -> None:
        candidates = self.here()
        if not candidates:
            return
        operation = self.rng.choice(self.operations)
        inputs = tuple(self.rng.choice(candidates) for _ in range(operation.inputs))
        tensors = [self.program.values[number] for number in inputs]
        numbers = operation.choose(self.rng, tensors)
        step: dict[str, Any] = {"kind": "operation", "name": operation.name, "inputs": inputs, "numbers": numbers}
        if operation.writes and not writable(tensors[0]):
            return
        if size_together(tensors) > MOST_ELEMENTS:
            return
        try:
            result = apply(operation, tensors, numbers)
        except Exception as error:
            self.program.steps.append(Step(**step, expected=error))
            return
        if result.numel() <= MOST_ELEMENTS and not operation.writes:
            self.add(result, self.device, **step)
        elif operation.writes:
            self.program.steps.append(Step(**step))

    def move(self) -> None:
        """To another device."""
        if candidates := self.here():
            number = self.rng.choice(candidates)
            target = self.rng.randrange(self.program.devices)
            self.add(self.program.values[number].clone(), target, kind="move", inputs=(number,), numbers=(target,))

    def through_the_host(self) -> None:
        if candidates := self.here():
            number = self.rng.choice(candidates)
            how = self.rng.choice(("pageable", "pinned", "pinned, not blocking"))
            self.add(
                self.program.values[number].clone(), self.device, kind="through the host", name=how, inputs=(number,)
            )

    def stream(self) -> None:
        """What follows runs on another stream, or device."""
        self.device = self.rng.randrange(self.program.devices)
        self.program.steps.append(Step("stream", numbers=(self.device, self.rng.randrange(STREAMS))))

    def wait(self) -> None:
        self.program.steps.append(Step("wait", self.rng.choice(self.waits)))

    def read(self) -> None:
        if candidates := [number for number in self.here() if self.program.values[number].numel()]:
            number = self.rng.choice(candidates)
            value = self.program.values[number].flatten()[-1].item()
            self.program.steps.append(Step("read", inputs=(number,), expected=value))

    def drop(self) -> None:
        if len(self.program.values) > 4:
            number = self.rng.choice(list(self.program.values))
            del self.program.values[number], self.device_of[number]
            self.program.steps.append(Step("drop", inputs=(number,)))

    def fail(self) -> None:
        """What only elements show."""
        self.program.steps.append(Step("fail", self.rng.choice(("stream", "event", "query"))))


def new_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    count = torch.Size(shape).numel()
    return torch.arange(count, device=device).mul_(37).remainder_(MODULUS).reshape(shape).to(dtype)


def size_together(tensors: list[torch.Tensor]) -> int:
    """The elements of an element-wise result, often many more than each tensor has; 0 if the shapes do not fit."""
    try:
        return torch.Size(torch.broadcast_shapes(*(tensor.shape for tensor in tensors))).numel()
    except RuntimeError:
        return 0


def writable(tensor: torch.Tensor) -> bool:
    """No two elements share memory."""
    strides = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    apart = all(stride * size <= following for (stride, size), (following, _) in itertools.pairwise(strides))
    return apart and all(stride for stride, _ in strides)
