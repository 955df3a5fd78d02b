"""Memory that several streams use: when a freed block may be used again.

A caching allocator gives a freed block to the next request of the same stream at once, because a stream runs in
order. Another stream may have it only when the work of the first is complete. `Tensor.record_stream` tells the
allocator about further users. These checks free memory that unfinished work still reads, and overwrite what the
allocator gives out next.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import Trials, buffers, value

SIZE = 300_000  # elements. No other work has tensors of this size, so the allocator has no other free blocks for it
ROUNDS = 4


def overwrite_free_memory(device: Device) -> list[torch.Tensor]:
    """Takes blocks of the size that was just freed, and writes into them, on the current stream."""
    return [torch.full((SIZE,), -7.0, device=device.this) for _ in range(ROUNDS)]


def full_on(stream: torch.Stream, number: int) -> torch.Tensor:
    """A tensor of the stream's memory; its elements are written when this returns."""
    with stream:
        made = torch.full((SIZE,), float(number), device=stream.device)
    stream.synchronize()
    return made


@check(level=Level.ASYNCHRONOUS, hook="aten::record_stream; DeviceAllocator::recordStream", needs=("streams",))
def record_stream_keeps_the_memory(device: Device) -> None:
    """A block that another stream uses is not given out again before that stream's work is complete.

    `Tensor.record_stream` calls an operator without a kernel for the CPU: the backend registers it and tells its
    allocator. If it does nothing, freed memory is overwritten while the other stream still reads it.
    """
    user = torch.Stream(device.this)
    result = torch.zeros(SIZE, device=device.this)
    result.copy_(torch.zeros(SIZE, device=device.this))
    trials = Trials(device, user, wanted=4)
    for number in trials:
        x = torch.full((SIZE,), float(number), device=device.this)
        torch.accelerator.current_stream().synchronize()
        with user:
            result.copy_(x)
        x.record_stream(user)
        trials.ahead()
        del x
        overwrite_free_memory(device)
        torch.accelerator.synchronize()
        assert value(result) == number, "the memory was used again while a recorded stream still read it"


@check(level=Level.ASYNCHRONOUS, hook="Allocator::allocate: order blocks by stream", needs=("streams",))
def freed_memory_waits_for_its_stream(device: Device) -> None:
    """A block that is freed while its own stream still uses it is not given to another stream.

    The allocator must know on which stream it gave out each block, and give it to other streams only when that stream's
    work is complete.
    """
    owner = torch.Stream(device.this)
    result = torch.zeros(SIZE, device=device.this)
    result.copy_(torch.zeros(SIZE, device=device.this))
    torch.accelerator.synchronize()
    trials = Trials(device, owner, wanted=4)
    held = [full_on(owner, 1)]  # written before the work that keeps the stream busy: only the read comes after it
    for number in trials:
        with owner:
            result.copy_(held[0])
        trials.ahead()
        held.clear()
        overwrite_free_memory(device)
        torch.accelerator.synchronize()
        assert value(result) == number, "another stream got the memory while its owner still read it"
        held.append(full_on(owner, number + 1))


@check(level=Level.ASYNCHRONOUS, hook="Allocator::allocate: order blocks by stream", needs=("streams",))
def memory_of_a_stream_is_reused_in_order(device: Device) -> None:
    """Temporary tensors of one stream are correct although their memory is used again at once.

    The stream's order makes the early reuse safe, if kernels do not keep addresses of memory that was given out again.
    """
    stream = torch.Stream(device.this)
    result = torch.zeros(SIZE, device=device.this)
    torch.accelerator.synchronize()
    trials = Trials(device, stream)
    for number in trials:
        with stream:
            total = torch.zeros(SIZE, device=device.this)
            for step in range(8):
                total = total + torch.full((SIZE,), float(step), device=device.this)
            result.copy_(total * number)
        trials.ahead()
        stream.synchronize()
        assert value(result) == 28 * number


@check(level=Level.ASYNCHRONOUS, hook="operators that return values to the host wait", needs=("streams",))
def reading_values_waits(device: Device) -> None:
    """`item`, `tolist`, `cpu`, `bool` and `nonzero` wait for the work before them.

    The host needs the values, so these calls wait for the current stream. Other operators should not.
    """
    stream = torch.Stream(device.this)
    (x,) = buffers(device, 1)
    reads: dict[str, Callable[[int], float]] = {
        "item": lambda _: x[0].item(),
        "tolist": lambda _: x[:2].tolist()[1],
        "cpu": lambda _: x.cpu()[5].item(),
        "bool": lambda wanted: wanted if bool(x[0] == wanted) else -1,
        "nonzero": lambda wanted: wanted if len(torch.nonzero(x[:3] == wanted)) == 3 else -1,
        "to": lambda _: x.to("cpu", torch.float64)[7].item(),
        "copy_": lambda _: torch.empty(4).copy_(x[:4])[3].item(),
    }
    for name, read in reads.items():
        trials = Trials(device, stream, wanted=1)
        for number in trials:
            with stream:
                x.fill_(number)
                trials.ahead()
                got = read(number)
            assert got == number, f"{name} returned {got}, which is not what the stream wrote before, {number}"


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::record, block", needs=("streams",))
def backward_runs_on_the_stream_of_the_forward_pass(device: Device) -> None:
    """`backward` is ordered after a forward pass on another stream, and its gradients before what follows.

    Autograd runs each node on the stream of its forward call, and orders the streams by events. The caller waits
    once, as PyTorch's documentation demands for the first gradient.
    """
    side = torch.Stream(device.this)
    (source,) = buffers(device, 1)
    weight = torch.ones(source.shape, device=device.this, requires_grad=True)
    (weight * source).sum().backward()
    torch.accelerator.synchronize()
    trials = Trials(device, side)
    for number in trials:
        weight.grad = torch.zeros_like(weight)
        with side:
            source.fill_(number)
            loss = (weight * source).sum()
        torch.accelerator.current_stream().wait_stream(side)
        trials.ahead()
        loss.backward()
        assert value(weight.grad) == number, f"the gradient is {value(weight.grad)}, not {number}"
        side.wait_stream(torch.accelerator.current_stream())


@check(level=Level.ASYNCHRONOUS, hook="DeviceGuardImplInterface::recordDataPtrOnStream", needs=("streams",))
def gradients_between_streams_keep_their_memory(device: Device) -> None:
    """A gradient that a node of another stream reads is not overwritten after it is freed.

    The engine calls recordDataPtrOnStream for gradients that pass between streams. Its default does nothing.
    """
    first, second = torch.Stream(device.this), torch.Stream(device.this)
    trials = Trials(device, first, wanted=6)
    for number in trials:
        x = torch.full((SIZE,), 1.0, device=device.this, requires_grad=True)
        first.wait_stream(torch.accelerator.current_stream())
        with first:
            y = x * number
        second.wait_stream(first)
        with second:
            z = y * 3
        torch.accelerator.current_stream().wait_stream(second)
        trials.ahead()
        (z * 2).sum().backward()
        overwrite_free_memory(device)
        with second:
            overwrite_free_memory(device)
        assert x.grad is not None
        assert value(x.grad) == 6 * number, f"the gradient is {value(x.grad)}, not {6 * number}"
        torch.accelerator.synchronize()
