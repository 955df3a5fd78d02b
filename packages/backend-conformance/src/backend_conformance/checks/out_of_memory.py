"""Running out of memory: an error that a program can handle.

The allocator throws `c10::OutOfMemoryError`, which is `torch.OutOfMemoryError` in Python. Programs catch it and go on
with smaller batches, so whatever existed before must be as it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from backend_conformance import Device, Level, check, wrong
from backend_conformance.evidence import refused
from backend_conformance.verdicts import Verdict, first_line, verdict_of

_TOO_MUCH = 1 << 46  # bytes: 64 TiB


def runs_out(action: Callable[[], object], what: str) -> None:
    """The call has to raise torch.OutOfMemoryError; a refusal of what it does is an error of its own."""
    error = refused(action, what, RuntimeError, MemoryError)
    if verdict_of(error) is Verdict.MISSING:
        raise error
    if not isinstance(error, torch.OutOfMemoryError):
        wrong(f"{what}: {type(error).__name__} instead of torch.OutOfMemoryError: {first_line(error)}")


@check(level=Level.BOOTS, hook="throw c10::OutOfMemoryError")
def too_large_a_tensor_is_an_error_of_its_own(device: Device) -> None:
    """A tensor of 64 TiB raises `torch.OutOfMemoryError`, and the device remains usable.

    Programs that retry with less memory catch no other error.
    """
    before = torch.arange(4.0, device=device.this)
    for _ in range(3):
        runs_out(lambda: torch.empty(_TOO_MUCH, dtype=torch.uint8, device=device.this), "64 TiB")
    device.cpu_equal(before + 1, [1.0, 2.0, 3.0, 4.0])


@check(level=Level.BOOTS, hook="aten::empty.memory_format: compute sizes with a check of overflow")
def sizes_that_overflow_are_refused(device: Device) -> None:
    """A size whose bytes do not fit in 64 bits raises, instead of returning a tensor with less memory than it claims.

    `at::detail::empty_generic` checks this; a factory of a backend's own may not.
    """
    for size, dtype in (((1 << 62,), torch.int64), ((1 << 32, 1 << 31, 4), torch.uint8), ((1 << 61, 8), torch.uint8)):
        make = partial(torch.empty, size, dtype=dtype, device=device.this)
        refused(make, f"a tensor of the size {size} and {dtype}")
        strides = [1] * (len(size) - 1) + [1 << 62]
        make = partial(torch.empty_strided, size, strides, dtype=dtype, device=device.this)
        refused(make, f"a tensor of the size {size} and {dtype}, with the strides {strides}")
    device.cpu_equal(torch.ones(2, device=device.this), [1.0, 1.0])


@check(level=Level.TRAINS, hook="throw c10::OutOfMemoryError")
def operator_that_runs_out_of_memory_leaves_its_arguments(device: Device) -> None:
    """An operator whose result does not fit raises `torch.OutOfMemoryError`; arguments and later calls are right."""
    x = torch.arange(4.0, device=device.this)
    wide = x.view(4, 1).expand(4, _TOO_MUCH // 4)
    for name, action in {
        "clone": lambda: wide.clone(),
        "contiguous": lambda: wide.contiguous(),
        "add": lambda: wide + 1,
        "cat": lambda: torch.cat([wide, wide]),
        "repeat": lambda: x.repeat(_TOO_MUCH // 4),
    }.items():
        runs_out(action, f"{name} of 256 TiB")
    device.cpu_equal(x, [0.0, 1.0, 2.0, 3.0])
    device.cpu_equal(x * 2, [0.0, 2.0, 4.0, 6.0])


@check(level=Level.TRAINS, hook="throw c10::OutOfMemoryError")
def backward_pass_that_runs_out_of_memory_can_be_repeated(device: Device) -> None:
    """The error of autograd's thread is raised by `backward()` as `torch.OutOfMemoryError`, and a second pass works."""

    class Hungry(torch.autograd.Function):
        size = _TOO_MUCH

        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            torch.empty(Hungry.size, dtype=torch.uint8, device=gradient.device)
            return gradient * 2

    x = torch.ones(3, device=device.this, requires_grad=True)
    hungry: Any = Hungry
    loss = hungry.apply(x).sum()
    runs_out(lambda: loss.backward(retain_graph=True), "64 TiB in a backward pass")
    assert x.grad is None, "the failed pass leaves a gradient"
    Hungry.size = 16
    device.cpu_equal(torch.autograd.grad(loss, x)[0], [2.0] * 3)


@check(level=Level.COMPLETE, hook="PrivateUse1HooksInterface::resizePrivateUse1Bytes: allocate before anything else")
def storage_that_cannot_grow_stays(device: Device) -> None:
    """A storage that cannot grow raises `torch.OutOfMemoryError`, and keeps its size and its bytes."""
    x = torch.arange(4.0, device=device.this)
    runs_out(lambda: x.untyped_storage().resize_(_TOO_MUCH), "a storage of 64 TiB")
    assert x.untyped_storage().nbytes() == 16
    device.cpu_equal(x, [0.0, 1.0, 2.0, 3.0])


@check(level=Level.COMPLETE, hook="DeviceAllocator::getDeviceStats")
def failed_allocations_do_not_count(device: Device) -> None:
    """After `torch.OutOfMemoryError` the statistics count the memory in use, not the failed request."""
    torch.empty(1 << 20, dtype=torch.uint8, device=device.this)
    gc.collect()
    before = torch.accelerator.memory_allocated()
    refused(lambda: torch.empty(_TOO_MUCH, dtype=torch.uint8, device=device.this), "64 TiB")
    assert torch.accelerator.memory_allocated() == before
    assert torch.accelerator.memory_reserved() < _TOO_MUCH
    assert torch.accelerator.max_memory_allocated() < _TOO_MUCH
