"""``torch.cuda.nccl``: collectives over the devices of one process, on their current streams or on given ones."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch

VERSION = (2 << 32) | (27 << 16)
_ID_BYTES = 128

# ncclRedOp_t
_REDUCTIONS: dict[int, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    0: torch.add,
    1: torch.mul,
    2: torch.maximum,
    3: torch.minimum,
    4: torch.add,  # the average
}
_AVERAGE = 4

Streams = Sequence["torch.Stream | None"] | None


def functions() -> dict[str, Callable[..., Any]]:
    """The functions by their names in ``torch._C``."""
    return {
        "_nccl_version": lambda: VERSION,
        "_nccl_version_suffix": lambda: b"",
        "_nccl_unique_id": lambda: secrets.token_bytes(_ID_BYTES),
        "_nccl_all_reduce": _all_reduce,
        "_nccl_reduce": _reduce,
        "_nccl_broadcast": _broadcast,
        "_nccl_all_gather": _all_gather,
        "_nccl_reduce_scatter": _reduce_scatter,
    }


def _collective(function: Callable[..., None]) -> Callable[..., None]:
    # Each stream waits for those of the other devices before the first copy, and after the last one.
    @functools.wraps(function)
    def on_streams(inputs: Sequence[torch.Tensor], *args: Any) -> None:
        *rest, streams, comms = args
        if comms:
            raise NotImplementedError("openreg: NCCL's communicators are not emulated (got comms, expected None)")
        devices = [tensor.device for tensor in inputs]
        if len(set(devices)) != len(devices) or any(device.type != "cuda" for device in devices):
            raise RuntimeError(
                f"openreg: the inputs must be on different CUDA devices (got {', '.join(map(str, devices))})"
            )
        given = streams or [None] * len(inputs)
        used = [stream or torch.cuda.current_stream(device) for stream, device in zip(given, devices, strict=True)]
        _join(used)
        previous = [torch.cuda.current_stream(device) for device in devices]
        current = torch.cuda.current_device()
        try:
            for stream in used:
                torch.cuda.set_stream(stream)
            function(inputs, *rest)
        finally:
            for stream in previous:
                torch.cuda.set_stream(stream)
            torch.cuda.set_device(current)
        _join(used)

    return on_streams


def _join(streams: Sequence[torch.Stream]) -> None:
    events = [stream.record_event() for stream in streams]
    for stream in streams:
        for event in events:
            stream.wait_event(event)


def _reduced(inputs: Sequence[torch.Tensor], device: torch.device, op: int) -> torch.Tensor:
    if op not in _REDUCTIONS:
        raise RuntimeError(f"openreg: unknown reduction (got {op}, expected {min(_REDUCTIONS)} to {max(_REDUCTIONS)})")
    total = functools.reduce(_REDUCTIONS[op], (tensor.to(device) for tensor in inputs))
    return total / len(inputs) if op == _AVERAGE else total


@_collective
def _all_reduce(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: int) -> None:
    total = _reduced(inputs, inputs[0].device, op)
    for output in outputs:
        output.copy_(total)


@_collective
def _reduce(inputs: Sequence[torch.Tensor], output: torch.Tensor, root: int, op: int) -> None:
    output.copy_(_reduced(inputs, inputs[root].device, op))


@_collective
def _broadcast(inputs: Sequence[torch.Tensor], root: int) -> None:
    for tensor in inputs:
        if tensor is not inputs[root]:
            tensor.copy_(inputs[root])


@_collective
def _all_gather(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    for output in outputs:
        for part, tensor in zip(output.view(len(inputs), -1), inputs, strict=True):
            part.copy_(tensor.reshape(-1))


@_collective
def _reduce_scatter(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: int) -> None:
    total = _reduced(inputs, inputs[0].device, op).view(len(outputs), -1)
    for output, part in zip(outputs, total, strict=True):
        output.copy_(part.view_as(output))
