"""Random numbers: one default generator per device. Its state is 16 bytes, seed and offset, as with CUDA.

Seeding, and reading or setting states, do not initialise the device: ``torch.manual_seed`` costs a CPU program nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

from .. import _C
from .._slot import NAME
from .arguments import device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

_Device = torch.device | str | int


def _get_generator(device: _Device = NAME) -> torch.Generator:
    """The default generator of `device`, or of the current device if the index is missing or negative.

    Raises:
        RuntimeError: there is no such device.
    """
    return _C.default_generator(device_index(device, negative_is_current=True))


def _generator_of(device: _Device) -> torch.Generator:
    return _C.default_generator(device_index(device))


@functools.cache
def default_generators() -> tuple[torch.Generator, ...]:
    """The default generators of all devices, by index."""
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def manual_seed(seed: int) -> None:
    """Seeds the current device's default generator with ``int(seed)``. During a capture, the same seed has no effect.

    Raises:
        TypeError, ValueError: as `int(seed)` raises.
        RuntimeError: the current stream is being captured, and the seed is a different one.
    """
    _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all devices with ``int(seed)``. ``torch.manual_seed`` calls it."""
    seed = int(seed)
    for generator in default_generators():
        generator.manual_seed(seed)


def seed() -> None:
    """Seeds the current device's default generator from the operating system."""
    _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seeds the default generators of all devices with one number from the operating system."""
    generators = default_generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The current seed of the current device's default generator."""
    return _get_generator().initial_seed()


def get_rng_state(device: _Device = NAME) -> torch.Tensor:
    """The state of `device`'s default generator: a CPU tensor of 16 bytes (uint8), seed (8) and offset (8).

    During a capture the offset is the position in the graph's numbers.
    """
    return _generator_of(device).get_state()


def _get_rng_state_offset(device: _Device = NAME) -> int:
    """The offset of `device`'s default generator: the position in its sequence."""
    return _generator_of(device).get_offset()


def _set_rng_state_offset(offset: int, device: _Device = NAME) -> None:
    """Sets the offset of `device`'s default generator, a multiple of 4.

    Raises:
        RuntimeError: `offset` is negative or not a multiple of 4, or there is no such device.
    """
    _generator_of(device).set_offset(offset)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' default generators, by index."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: _Device = NAME) -> None:
    """Sets the state of `device`'s default generator to a result of `get_rng_state`.

    Raises:
        TypeError, RuntimeError: `new_state` is not a contiguous CPU tensor of 16 bytes (uint8), or of 8: a seed alone,
            whose offset is 0.
        RuntimeError: the offset in `new_state` is invalid, or the seed differs during a capture.
    """
    _generator_of(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of the devices' default generators, by index."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
