"""Random numbers. ``torch.manual_seed`` calls ``manual_seed_all``; checkpoints and ``fork_rng`` use the states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .device import device_count, index_of


def _generator(device: Any = None) -> torch.Generator:
    generator: torch.Generator = torch.ops.torch_acme.default_generator(index_of(device))
    return generator


def manual_seed(seed: int) -> None:
    _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for i in range(device_count()):
        _generator(i).manual_seed(seed)


def seed() -> int:
    return _generator().seed()


def seed_all() -> None:
    manual_seed_all(seed())


def initial_seed() -> int:
    return _generator().initial_seed()


def get_rng_state(device: Any = "acme") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "acme") -> None:
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
