"""Runs a program on the device, with as little order between its streams as is right."""

from __future__ import annotations

import itertools
from collections import defaultdict

import torch

from operations import BY_NAME, apply
from program import DEVICE, STREAMS, Program, Step, new_tensor


class Difference(Exception):
    """What the device made of a program is not what the CPU did."""


class Machine:
    """Variables of a program, and which streams have to be waited for before they are touched."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.variables: dict[int, torch.Tensor] = {}
        self.streams = [
            [torch.Stream(torch.device(DEVICE, device)) for _ in range(STREAMS)] for device in range(program.devices)
        ]
        self.current = self.streams[0][0]
        # By storage: the end of the last write, and of the reads since, by stream.
        self.written: dict[int, tuple[torch.Stream, torch.Event]] = {}
        self.read: defaultdict[int, dict[torch.Stream, torch.Event]] = defaultdict(dict)
        self.birth: dict[int, torch.Stream] = {}

    def run(self) -> None:
        for position, step in enumerate(self.program.steps):
            try:
                with self.current:
                    self.take(step)
            except Difference:
                raise
            except Exception as error:
                raise Difference(f"step {position} ({step}) raises {type(error).__name__}: {error}") from error
        for stream in itertools.chain(*self.streams):
            stream.synchronize()
        for number, expected in self.program.values.items():
            self.compare(number, expected)

    def compare(self, number: int, expected: torch.Tensor) -> None:
        got = self.variables[number]
        if got.dtype != expected.dtype or got.shape != expected.shape:
            raise Difference(
                f"v{number} is {got.dtype} {tuple(got.shape)}, on the CPU {expected.dtype} {tuple(expected.shape)}"
            )
        if torch.equal(got.cpu(), expected):
            return
        where = (got.cpu() != expected).nonzero()
        first = tuple(where[0].tolist())
        raise Difference(
            f"v{number} differs in {len(where)} of {expected.numel()} elements; at {first} it is {got.cpu()[first]}, "
            f"on the CPU {expected[first]}"
        )

    def take(self, step: Step) -> None:
        tensors = [self.variables[number] for number in step.inputs]
        if step.kind == "new":
            shape, dtype = step.numbers
            self.keep(step.result, new_tensor(shape, dtype, device=str(self.current.device)))
        elif step.kind == "operation":
            self.operation(step, tensors)
        elif step.kind == "move":
            self.move(step, tensors[0])
        elif step.kind == "through the host":
            self.through_the_host(step, tensors[0])
        elif step.kind == "stream":
            device, stream = step.numbers
            self.current = self.streams[device][stream]
        elif step.kind == "wait":
            wait(self.current, step.name)
        elif step.kind == "read":
            self.before(tensors)
            if (got := tensors[0].flatten()[-1].item()) != step.expected:
                raise Difference(f"{step} is {got}, on the CPU {step.expected}")
        elif step.kind == "drop":
            self.drop(step.inputs[0])
        elif step.kind == "fail":
            self.fail(step.name)

    def operation(self, step: Step, tensors: list[torch.Tensor]) -> None:
        operation = BY_NAME[step.name]
        self.before(tensors, writes=operation.writes)
        try:
            result = apply(operation, tensors, step.numbers)
        except Exception as error:
            if type(error) is type(step.expected):
                self.after(tensors)
                return
            raise
        if step.expected is not None:
            raise Difference(f"{step} returns, on the CPU {type(step.expected).__name__}: {step.expected}")
        self.after(tensors, writes=operation.writes)
        if step.result >= 0:
            self.keep(step.result, result)

    def move(self, step: Step, tensor: torch.Tensor) -> None:
        self.before([tensor])
        moved = tensor.to(f"{DEVICE}:{step.numbers[0]}", copy=True, non_blocking=True)
        self.after([tensor])
        self.keep(step.result, moved)

    def through_the_host(self, step: Step, tensor: torch.Tensor) -> None:
        self.before([tensor])
        if step.name == "pageable":
            result = tensor.cpu().to(tensor.device)
        else:
            pinned = torch.empty_like(tensor, device="cpu", pin_memory=True)
            pinned.copy_(tensor, non_blocking=True)
            if step.name == "pinned":
                self.current.synchronize()
                result = pinned.clone().to(tensor.device)
            else:
                result = pinned.to(tensor.device, non_blocking=True)  # the same stream: after the copy
        self.after([tensor])
        self.keep(step.result, result)

    def fail(self, how: str) -> None:
        """On a stream that nothing else uses: the failure is for that one only, and raised once. Streams are handed out
        in turn, 32 of each priority, so those of programs have the other one."""
        stream = torch.Stream(self.current.device, priority=-1)
        with stream:
            torch.ones(3, device=stream.device).index_select(0, torch.tensor([7], device=stream.device))
        for attempt in range(2):
            try:
                wait(stream, how)
            except torch.AcceleratorError:
                raised = True
            else:
                raised = False
            if raised != (attempt == 0):
                raise Difference(f"a stream's failure is {'raised twice' if raised else 'not raised'}")

    def keep(self, number: int, tensor: torch.Tensor) -> None:
        self.variables[number] = tensor
        storage = storage_of(tensor)
        if storage not in self.birth:
            self.birth[storage] = torch.accelerator.current_stream(tensor.device)
            self.written[storage] = (self.current, self.current.record_event())

    def before(self, tensors: list[torch.Tensor], writes: bool = False) -> None:
        """The current stream waits for what other streams have done with the tensors."""
        for i, tensor in enumerate(tensors):
            storage = storage_of(tensor)
            events = [self.written[storage]]
            if writes and i == 0:
                events += list(self.read[storage].items())
            for stream, event in events:
                if stream != self.current:
                    self.current.wait_event(event)

    def after(self, tensors: list[torch.Tensor], writes: bool = False) -> None:
        event = self.current.record_event()
        for i, tensor in enumerate(tensors):
            storage = storage_of(tensor)
            if writes and i == 0:
                self.written[storage] = (self.current, event)
                self.read[storage].clear()
            self.read[storage][self.current] = event

    def drop(self, number: int) -> None:
        """Reports to the allocator what other streams still do with the memory."""
        tensor = self.variables.pop(number)
        storage = storage_of(tensor)
        if any(storage_of(other) == storage for other in self.variables.values()):
            return
        for stream in self.read.pop(storage, {}):
            if stream != self.birth[storage]:
                tensor.record_stream(stream)
        if self.written[storage][0] != self.birth[storage]:
            tensor.record_stream(self.written[storage][0])
        del self.birth[storage], self.written[storage]


def wait(stream: torch.Stream, how: str) -> None:
    if how == "stream":
        stream.synchronize()
    elif how == "device":
        torch.accelerator.synchronize(stream.device)
    elif how == "event":
        stream.record_event().synchronize()
    else:
        event = stream.record_event()
        while not event.query():
            pass


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
