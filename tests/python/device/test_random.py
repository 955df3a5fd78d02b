"""Random numbers: generators, seeds and states, as Python sees them."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE


@pytest.mark.any_device
def test_a_generator_lies_on_its_device():
    generator = torch.Generator(f"{DEVICE}:1")
    assert generator.device == torch.device(f"{DEVICE}:1")
    assert generator.manual_seed(42).initial_seed() == 42


def test_default_generators_are_one_per_device_and_always_the_same():
    generators = torch.openreg.default_generators
    assert [g.device for g in generators] == [torch.device(DEVICE, i) for i in range(2)]
    assert torch.openreg.default_generators[1] is generators[1] is torch.openreg._get_generator(f"{DEVICE}:1")
    with torch.accelerator.device_index(1):
        assert torch.openreg._get_generator(DEVICE) is torch.openreg._get_generator(-1) is generators[1]


def test_torch_manual_seed_seeds_all_devices():
    torch.manual_seed(11)
    assert [g.initial_seed() for g in torch.openreg.default_generators] == [11, 11]


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


@pytest.mark.parametrize("device", [0, 1, DEVICE, f"{DEVICE}:1", torch.device(f"{DEVICE}:0")])
def test_the_state_is_16_bytes_and_brings_the_numbers_back(device):
    state = torch.openreg.get_rng_state(device)
    assert (state.device.type, state.dtype, state.numel()) == ("cpu", torch.uint8, 16)
    on = torch.device(DEVICE, device) if isinstance(device, int) else device
    first = torch.rand(100, device=on)
    assert not torch.equal(torch.rand(100, device=on), first)
    torch.openreg.set_rng_state(state, device)
    assert torch.equal(torch.rand(100, device=on), first)


def test_the_state_is_seed_and_offset():
    torch.openreg.manual_seed(77)
    state = torch.openreg.get_rng_state()
    assert state.view(torch.int64).tolist() == [77, 0]
    torch.rand(10, device=DEVICE)
    seed, offset = torch.openreg.get_rng_state().view(torch.int64).tolist()
    assert seed == 77 and offset > 0 and offset % 4 == 0


@pytest.mark.any_device
def test_the_offset_can_be_read_and_set():
    generator = torch.Generator(DEVICE).manual_seed(3)
    assert generator.get_offset() == 0
    torch.rand(10, device=DEVICE, generator=generator)
    offset = generator.get_offset()
    second = torch.rand(10, device=DEVICE, generator=generator)
    generator.set_offset(offset)
    assert torch.equal(torch.rand(10, device=DEVICE, generator=generator), second)


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


@pytest.mark.parametrize("bad", [torch.zeros(15, dtype=torch.uint8), torch.zeros(16)])
def test_a_malformed_state_is_refused(bad):
    before = torch.openreg.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        torch.openreg.set_rng_state(bad)
    assert torch.equal(torch.openreg.get_rng_state(), before)


def test_a_wrong_device_is_refused():
    with pytest.raises(RuntimeError, match="out of range"):
        torch.openreg.get_rng_state(7)


@pytest.mark.any_device
def test_the_same_seed_gives_the_same_numbers_on_both_devices():
    numbers = []
    for index in range(2):
        generator = torch.Generator(f"{DEVICE}:{index}").manual_seed(9)
        numbers.append(torch.randn(1000, device=f"{DEVICE}:{index}", generator=generator).cpu())
    assert torch.equal(*numbers)


@pytest.mark.any_device
def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError):
        torch.rand(2, device=DEVICE, generator=torch.Generator("cpu"))


def test_fork_rng_restores_the_device_s_state():
    torch.openreg.manual_seed_all(3)
    before = torch.openreg.get_rng_state_all()
    with torch.random.fork_rng(devices=[0, 1], device_type=DEVICE):
        torch.manual_seed(4)
        torch.rand(5, device=DEVICE)
    for state, expected in zip(torch.openreg.get_rng_state_all(), before, strict=True):
        assert torch.equal(state, expected)


@pytest.mark.any_device
def test_checkpointing_replays_dropout():
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    seen = []

    def block(t):
        y = torch.nn.functional.dropout(t, 0.5)
        seen.append(y.detach().cpu())
        return y * 2

    with set_checkpoint_early_stop(False):
        checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(seen) == 2
    assert torch.equal(*seen)
    assert torch.equal(x.grad.cpu(), 2 * seen[0])


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
