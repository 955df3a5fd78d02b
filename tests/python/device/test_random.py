"""Random numbers: generators, seeds and states, as Python sees them."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE


def test_default_generators_are_one_per_device_and_always_the_same():
    generators = torch.openreg.default_generators
    assert [g.device for g in generators] == [torch.device(DEVICE, i) for i in range(2)]
    assert torch.openreg.default_generators[1] is generators[1] is torch.openreg._get_generator(f"{DEVICE}:1")
    with torch.accelerator.device_index(1):
        assert torch.openreg._get_generator(DEVICE) is torch.openreg._get_generator(-1) is generators[1]


def test_manual_seed_seeds_the_current_device_only():
    torch.openreg.manual_seed_all(1)
    with torch.accelerator.device_index(1):
        torch.openreg.manual_seed(2)
        assert torch.openreg.initial_seed() == 2
    assert torch.openreg.initial_seed() == 1


def test_seed_takes_a_new_one_each_time():
    torch.openreg.seed_all()
    first = torch.openreg.initial_seed()
    assert torch.openreg.default_generators[1].initial_seed() == first
    torch.openreg.seed_all()
    assert torch.openreg.initial_seed() != first
    torch.openreg.seed()
    assert torch.openreg.initial_seed() != torch.openreg.default_generators[1].initial_seed()


@pytest.mark.any_device
def test_the_greatest_offset_is_followed_by_0():
    generator = torch.Generator(DEVICE).manual_seed(3)
    first = torch.rand(8, device=DEVICE, generator=generator)
    step = generator.get_offset()
    generator.set_offset(2**63 - step)
    torch.rand(8, device=DEVICE, generator=generator)
    assert generator.get_offset() == 0
    assert torch.equal(torch.rand(8, device=DEVICE, generator=generator), first)


def test_all_states_round_trip():
    torch.openreg.manual_seed_all(5)
    states = torch.openreg.get_rng_state_all()
    first = [torch.randn(4, device=f"{DEVICE}:{i}").tolist() for i in range(2)]
    torch.openreg.set_rng_state_all(states)
    assert [torch.randn(4, device=f"{DEVICE}:{i}").tolist() for i in range(2)] == first


def test_the_offset_of_the_default_generator_can_be_set():
    torch.manual_seed(3)
    assert torch.openreg._get_rng_state_offset() == 0
    first, second = torch.rand(5, device=DEVICE), torch.rand(5, device=DEVICE)
    after = torch.openreg._get_rng_state_offset(f"{DEVICE}:0")
    assert after > 0 and after % 4 == 0
    torch.openreg._set_rng_state_offset(after // 2)
    assert torch.equal(torch.rand(5, device=DEVICE), second)
    torch.openreg._set_rng_state_offset(0, f"{DEVICE}:0")
    assert torch.equal(torch.rand(5, device=DEVICE), first)
    with pytest.raises(RuntimeError):
        torch.openreg._set_rng_state_offset(3)
