"""Random numbers: the generators of the device.

PyTorch keeps one default generator for each device, which it asks the hooks for, and makes further ones for
`torch.Generator(device=...)`. Random operators of the device draw from them, never from the CPU's.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check


@check(level=Level.TRAINS, hook="c10::GeneratorImpl::set_current_seed")
def manual_seed_repeats_the_numbers(device: Device) -> None:
    """The same seed gives the same numbers again, and the numbers go on.

    `torch.manual_seed` seeds the CPU, and calls `manual_seed_all` of the device's module, which has to seed the default
    generators of all devices. Without it, training on the device is not reproducible.
    """
    torch.manual_seed(0)
    first, second = torch.rand(100, device=device.this), torch.rand(100, device=device.this)
    torch.manual_seed(0)
    again = torch.rand(100, device=device.this)
    assert torch.equal(first.cpu(), again.cpu()), "the same seed gives other numbers"
    assert not torch.equal(first.cpu(), second.cpu()), "each call gives the same numbers"


@check(level=Level.TRAINS, hook="the operators' default generator")
def device_leaves_the_generator_of_the_cpu_alone(device: Device) -> None:
    """Random operators of the device do not advance the CPU's generator.

    A fallback to the CPU's kernels draws from the CPU's generator: then numbers of the host depend on what the device
    does, and the device ignores its own seed.
    """
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(100, device=device.this)
    torch.nn.functional.dropout(torch.ones(100, device=device.this))
    assert torch.equal(torch.rand(3), expected)
