"""Random programs on several streams, captured as a graph and replayed with other elements."""

from __future__ import annotations

import torch

from machine import Difference, Machine
from operations import BY_NAME, OPERATIONS, apply, indices
from program import DEVICE, Author, Program, new_tensor

REPLAYS = 4  # kernels keep what they can from the second one on
INPUTS = 4


class GraphAuthor(Author):
    """Writes what can be captured: of one device, and nothing that the host waits for."""

    # Indices come from the host's memory.
    operations = tuple(operation for operation in OPERATIONS if operation.choose is not indices)

    def __init__(self, seed: int) -> None:
        super().__init__(seed, devices=1, fails=False, waits_for_devices=False)

    def write(self) -> Program:
        for _ in range(INPUTS):
            self.new()
        for write_step in self.rng.choices([self.operation, self.stream, self.drop], [70, 18, 8], k=40):
            write_step()
        steps = self.program.steps
        steps[:] = [step for step in steps if not isinstance(step.expected, Exception)]
        return self.program


def elements(like: torch.Tensor, seed: int) -> torch.Tensor:
    return new_tensor(tuple(like.shape), like.dtype).add_(seed * 3).remainder_(17)


def on_cpu(program: Program, inputs: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    variables = {step.result: given for step, given in zip(program.steps, inputs, strict=False)}
    for step in program.steps[len(inputs) :]:
        if step.kind == "operation":
            result = apply(BY_NAME[step.name], [variables[number] for number in step.inputs], step.numbers)
            if step.result >= 0:
                variables[step.result] = result
        elif step.kind == "drop":
            del variables[step.inputs[0]]
    return variables


class Replayer(Machine):
    """Captures a program, and compares what replays make of other elements with the CPU."""

    def run(self) -> None:
        with self.current:
            for step in self.program.steps[:INPUTS]:
                self.take(step)
        inputs = [self.variables[number] for number in range(INPUTS)]
        torch.accelerator.synchronize()
        graph = torch.get_device_module(DEVICE).CUDAGraph()
        origin = self.current
        capture = torch.get_device_module(DEVICE).graph(graph, stream=origin, capture_error_mode="relaxed")
        with capture:
            begin = origin.record_event()
            for storage in self.written:
                self.written[storage] = (origin, begin)
            for stream in self.streams[0][1:]:
                stream.wait_event(begin)
            for step in self.program.steps[INPUTS:]:
                with self.current:
                    self.take(step)
            for stream in self.streams[0][1:]:
                origin.wait_stream(stream)
        for seed in range(REPLAYS):
            given = [elements(tensor, seed) for tensor in inputs]
            with origin:
                for static, new in zip(inputs, given, strict=True):
                    static.copy_(new)
                graph.replay()
                origin.synchronize()
            for number, expected in on_cpu(self.program, given).items():
                try:
                    self.compare(number, expected)
                except Difference as difference:
                    raise Difference(f"replay {seed}: {difference}") from None


def difference(seed: int) -> str | None:
    """What a replay of the program made otherwise than the CPU, if anything."""
    program = GraphAuthor(seed).write()
    try:
        Replayer(program).run()
    except Exception as error:
        return f"{program}\n{type(error).__name__}: {error}"
    return None
