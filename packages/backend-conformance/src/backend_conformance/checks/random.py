"""Random numbers: the generators of the device.

PyTorch asks the hooks for one default generator for each device, and for further ones
(`torch.Generator(device=...)`); each is a `c10::GeneratorImpl` with a seed and an offset. Random operators of the
device draw from them, never from the CPU's: at the launch they read seed and offset, and advance the offset by what
they will use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.utils.checkpoint

from backend_conformance import Device, Level, check, missing
from backend_conformance.evidence import in_threads, refused

# Operators with a generator as an argument.
_DRAWS: dict[str, Callable[[torch.device, torch.Generator | None], torch.Tensor]] = {
    "rand": lambda where, g: torch.rand(64, device=where, generator=g),
    "randn": lambda where, g: torch.randn(64, device=where, generator=g),
    "randint": lambda where, g: torch.randint(0, 1 << 20, (64,), device=where, generator=g),
    "randperm": lambda where, g: torch.randperm(64, device=where, generator=g),
    "uniform_": lambda where, g: torch.empty(64, device=where).uniform_(generator=g),
    "normal_": lambda where, g: torch.empty(64, device=where).normal_(generator=g),
    "random_": lambda where, g: torch.empty(64, dtype=torch.int64, device=where).random_(generator=g),
    "exponential_": lambda where, g: torch.empty(64, device=where).exponential_(generator=g),
    "geometric_": lambda where, g: torch.empty(64, device=where).geometric_(0.01, generator=g),
    "cauchy_": lambda where, g: torch.empty(64, device=where).cauchy_(generator=g),
    "log_normal_": lambda where, g: torch.empty(64, device=where).log_normal_(generator=g),
    "bernoulli": lambda where, g: torch.bernoulli(torch.full((64,), 0.5, device=where), generator=g),
    "multinomial": lambda where, g: torch.multinomial(torch.ones(512, device=where), 64, generator=g),
    "poisson": lambda where, g: torch.poisson(torch.full((64,), 500.0, device=where), generator=g),
}


@check(level=Level.TRAINS, hook="manual_seed_all of the module, GeneratorImpl::set_current_seed")
def manual_seed_repeats_the_numbers(device: Device) -> None:
    """The same seed gives the same numbers again, and later draws continue the sequence.

    `torch.manual_seed` seeds the CPU, and calls `manual_seed_all` of the device's module, which has to seed the default
    generators of all devices. Without it, training on the device is not reproducible.
    """
    torch.manual_seed(0)
    first, second = torch.rand(100, device=device.this), torch.rand(100, device=device.this)
    torch.manual_seed(0)
    again = torch.rand(100, device=device.this)
    torch.manual_seed(1)
    other = torch.rand(100, device=device.this)
    assert torch.equal(first.cpu(), again.cpu()), "the same seed gives other numbers"
    assert not torch.equal(first.cpu(), second.cpu()), "each call gives the same numbers"
    assert not torch.equal(first.cpu(), other.cpu()), "another seed gives the same numbers"


@check(level=Level.TRAINS, hook="manual_seed_all of the module", needs=("several_devices",))
def manual_seed_seeds_all_devices(device: Device) -> None:
    """`torch.manual_seed` seeds all devices, and each has a generator of its own.

    The same seed gives the same numbers on each device; what one draws does not advance another.
    """
    other = device.other
    torch.manual_seed(3)
    expected = torch.rand(50, device=other).cpu()
    torch.manual_seed(3)
    torch.rand(500, device=device.this)
    assert torch.equal(torch.rand(50, device=other).cpu(), expected), "draws of one device advance another's generator"
    torch.manual_seed(3)
    assert torch.equal(torch.rand(50, device=device.this).cpu(), expected), "the devices have other numbers"


@check(level=Level.TRAINS, hook="random operators that draw from the device's default generator")
def device_leaves_the_generator_of_the_cpu_alone(device: Device) -> None:
    """Random operators of the device do not advance the CPU's generator.

    A fallback to the CPU's kernels draws from the CPU's generator: then numbers of the host depend on what the device
    does, and the device ignores its own state. Dropout (`native_dropout`) has no generator as an argument, which such a
    fallback could replace.
    """
    torch.manual_seed(0)
    expected = torch.rand(3)
    draws: dict[str, Callable[[], torch.Tensor]] = {
        "rand": lambda: torch.rand(100, device=device.this),
        "randn": lambda: torch.randn(100, device=device.this),
        "randperm": lambda: torch.randperm(100, device=device.this),
        "dropout": lambda: torch.nn.functional.dropout(torch.ones(100, device=device.this)),
        "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.5, device=device.this)),
    }
    for name, draw in draws.items():
        torch.manual_seed(0)
        draw()
        assert torch.equal(torch.rand(3), expected), f"{name} on the device draws from the CPU's generator"


@check(level=Level.TRAINS, hook="random operators that use their argument `generator`", cases=tuple(_DRAWS))
def generator_of_the_argument_is_used(device: Device, case: str) -> None:
    """An operator with a generator draws from it alone: its seed repeats the numbers, and the default one stays."""
    draw = _DRAWS[case]
    generator = torch.Generator(device=device.this)
    first = draw(device.this, generator.manual_seed(7)).cpu()
    second = draw(device.this, generator).cpu()
    torch.manual_seed(1)
    default = draw(device.this, None).cpu()
    torch.manual_seed(1)
    again = draw(device.this, generator.manual_seed(7)).cpu()
    assert torch.equal(first, again), "the seed of the generator does not repeat the numbers"
    assert not torch.equal(first, second), "the generator is not advanced"
    assert torch.equal(draw(device.this, None).cpu(), default), "the default generator is advanced"


@check(level=Level.TRAINS, hook="random operators that advance the offset by what they use")
def calls_do_not_repeat_numbers_of_earlier_ones(device: Device) -> None:
    """Successive calls have no numbers in common.

    An offset that is advanced by too little makes the second call begin with numbers of the first, shifted.
    """
    generator = torch.Generator(device=device.this).manual_seed(11)
    for size in (5, 1000, 4099):
        calls = [torch.rand(size, device=device.this, generator=generator).cpu() for _ in range(3)]
        for one in range(3):
            for two in range(one):
                common = len(set(calls[one].tolist()) & set(calls[two].tolist()))
                # Two sets of 4099 of the 2**24 floats in [0, 1) share one by chance.
                assert common <= 12, f"two calls of {size} numbers share {common} of them"


@check(level=Level.TRAINS, hook="GeneratorImpl::get_state, set_state")
def state_repeats_the_numbers(device: Device) -> None:
    """A state that was saved repeats what followed it, in this and in another generator; it is a tensor of the CPU."""
    generator = torch.Generator(device=device.this).manual_seed(5)
    torch.rand(7, device=device.this, generator=generator)
    state = generator.get_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    expected = [torch.randn(9, device=device.this, generator=generator).cpu() for _ in range(2)]
    assert not torch.equal(generator.get_state(), state), "the state does not change when numbers are drawn"
    for each in (generator, torch.Generator(device=device.this)):
        each.set_state(state)
        assert torch.equal(each.get_state(), state)
        assert each.initial_seed() == 5, "the state has no seed"
        for numbers in expected:
            assert torch.equal(torch.randn(9, device=device.this, generator=each).cpu(), numbers)


@check(level=Level.TRAINS, hook="GeneratorImpl::set_state: check the size")
def wrong_state_is_refused(device: Device) -> None:
    """A state of a wrong size or dtype raises, and the generator is as before."""
    generator = torch.Generator(device=device.this).manual_seed(5)
    state = generator.get_state()
    refused(lambda: generator.set_state(state[:-1]), "a state that lacks a byte", RuntimeError, TypeError)
    refused(lambda: generator.set_state(state.float()), "a state of float32", RuntimeError, TypeError)
    assert torch.equal(generator.get_state(), state)


@check(level=Level.TRAINS, hook="GeneratorImpl::set_current_seed, current_seed, seed")
def seeds_are_kept(device: Device) -> None:
    """`initial_seed()` is the seed that was set, up to 64 bits; `seed()` sets a new one each time."""
    generator = torch.Generator(device=device.this)
    for seed in (0, 42, (1 << 63) + 5, (1 << 64) - 1):
        assert generator.manual_seed(seed) is generator
        assert generator.initial_seed() == seed
    one, two = generator.seed(), generator.seed()
    assert one != two, "seed() sets the same seed again"
    assert generator.initial_seed() == two


@check(level=Level.TRAINS, hook="get_rng_state, set_rng_state of the module")
def module_has_the_states(device: Device) -> None:
    """`get_rng_state` and `set_rng_state` of the module save and restore the default generator.

    PyTorch calls them with an index, with a `torch.device` and with nothing.
    """
    module = device.module
    torch.manual_seed(2)
    torch.rand(3, device=device.this)
    states = [module.get_rng_state(), module.get_rng_state(0), module.get_rng_state(device.this)]
    assert all(torch.equal(each, states[0]) for each in states)
    expected = torch.rand(5, device=device.this).cpu()
    for arguments in ((), (0,), (device.this,)):
        torch.manual_seed(99)
        module.set_rng_state(states[0], *arguments)
        found = torch.rand(5, device=device.this).cpu()
        assert torch.equal(found, expected), f"set_rng_state(state, {arguments}) does not restore"


@check(level=Level.TRAINS, hook="device_count, get_rng_state, set_rng_state of the module")
def fork_rng_restores(device: Device) -> None:
    """`torch.random.fork_rng(device_type="<name>")` restores the generators of all devices, and the CPU's."""
    last = device.at(device.count - 1)
    torch.manual_seed(4)
    with torch.random.fork_rng(devices=range(device.count), device_type=device.name):
        inside = torch.rand(5, device=device.this).cpu(), torch.rand(5, device=last).cpu(), torch.rand(5)
        torch.manual_seed(77)
        torch.rand(5, device=device.this)
    outside = torch.rand(5, device=device.this).cpu(), torch.rand(5, device=last).cpu(), torch.rand(5)
    for before, after in zip(inside, outside, strict=True):
        assert torch.equal(before, after)


@check(level=Level.TRAINS, hook="GeneratorImpl::mutex_ is held while seed and offset are read")
def threads_do_not_get_the_same_numbers(device: Device) -> None:
    """Threads that draw from one generator get different numbers."""
    torch.manual_seed(0)
    drawn: list[list[torch.Tensor]] = [[] for _ in range(4)]

    def draw(numbers: list[torch.Tensor]) -> None:
        for _ in range(50):
            numbers.append(torch.rand(16, device=device.this))

    in_threads(*(partial(draw, numbers) for numbers in drawn))
    calls = {tuple(call.tolist()) for numbers in drawn for call in numbers}
    assert len(calls) == 200, f"{200 - len(calls)} of 200 calls in 4 threads have the numbers of another"


@check(level=Level.COMPLETE, hook="at::check_generator in random operators")
def generator_of_another_device_is_refused(device: Device) -> None:
    """A generator of the CPU as the argument of a random operator on the device raises, as it does for CUDA."""
    refused(lambda: torch.rand(3, device=device.this, generator=torch.Generator()), "a generator of the CPU")
    refused(lambda: torch.empty(3, device=device.this).normal_(generator=torch.Generator()), "a generator of the CPU")
    refused(
        lambda: torch.rand(3, generator=torch.Generator(device=device.this)), "a generator of the device on the CPU"
    )


@check(level=Level.COMPLETE, hook="GeneratorImpl::get_offset, set_offset")
def offset_repeats_the_numbers(device: Device) -> None:
    """`get_offset` grows as numbers are drawn, and `set_offset` returns to a place in their sequence."""
    generator = torch.Generator(device=device.this).manual_seed(3)
    start = generator.get_offset()
    first = torch.rand(10, device=device.this, generator=generator).cpu()
    middle = generator.get_offset()
    assert middle > start, f"the offset after ten numbers is {middle}, as before"
    second = torch.rand(10, device=device.this, generator=generator).cpu()
    assert not torch.equal(first, second)
    generator.set_offset(middle)
    assert generator.get_offset() == middle
    assert torch.equal(torch.rand(10, device=device.this, generator=generator).cpu(), second)
    generator.set_offset(start)
    assert torch.equal(torch.rand(10, device=device.this, generator=generator).cpu(), first)


@check(level=Level.COMPLETE, hook="GeneratorImpl::get_state: seed and offset, 8 bytes each")
def state_is_seed_and_offset(device: Device) -> None:
    """The state has 16 bytes: the seed, then the offset.

    DTensor reads and writes it in this form, so that all ranks draw matching numbers.
    """
    generator = torch.Generator(device=device.this).manual_seed(0x0102030405060708)
    torch.rand(10, device=device.this, generator=generator)
    state = generator.get_state()
    if state.numel() != 16:
        missing(f"the state has {state.numel()} bytes: DTensor's random operators do not support this")
    seed, offset = state.view(torch.int64).tolist()
    assert seed == 0x0102030405060708, f"the first 8 bytes are {seed:#x}, not the seed"
    assert offset == generator.get_offset(), "the last 8 bytes are not the offset"


@check(level=Level.COMPLETE, hook="GeneratorImpl::clone_impl, graphsafe_get_state, graphsafe_set_state")
def generators_can_be_cloned_and_can_share_a_state(device: Device) -> None:
    """`clone_state` copies a generator; `graphsafe_set_state` makes two generators share a state, for graphs."""
    generator = torch.Generator(device=device.this).manual_seed(5)
    torch.rand(3, device=device.this, generator=generator)
    clone = generator.clone_state()
    expected = torch.rand(3, device=device.this, generator=generator).cpu()
    assert torch.equal(torch.rand(3, device=device.this, generator=clone).cpu(), expected)
    shared = torch.Generator(device=device.this)
    shared.graphsafe_set_state(generator.graphsafe_get_state())
    one = torch.rand(3, device=device.this, generator=generator).cpu()
    two = torch.rand(3, device=device.this, generator=shared).cpu()
    assert not torch.equal(one, two), "the generators draw the same numbers: they do not share a state"
    shared.manual_seed(9)
    assert generator.initial_seed() == 9


@check(level=Level.COMPLETE, hook="deterministic algorithms, or globalContext().alertNotDeterministic")
def deterministic_algorithms_repeat_every_bit(device: Device) -> None:
    """With `torch.use_deterministic_algorithms(True)` sums repeat every bit, or are refused."""
    torch.manual_seed(0)
    index = torch.randint(0, 50, (20_000,), device=device.this)
    values = torch.randn(20_000, device=device.this)
    torch.use_deterministic_algorithms(True)
    try:
        sums: dict[str, Callable[[], torch.Tensor]] = {
            "index_add": lambda: torch.zeros(50, device=device.this).index_add(0, index, values),
            "scatter_add": lambda: torch.zeros(50, device=device.this).scatter_add(0, index, values),
            "index_put": lambda: torch.zeros(50, device=device.this).index_put((index,), values, accumulate=True),
            "bincount": lambda: torch.bincount(index, values),
            "cumsum": lambda: values.cumsum(0),
        }
        for name, action in sums.items():
            try:
                results = [action().cpu() for _ in range(6)]
            except RuntimeError as error:
                if "deterministic" not in str(error):
                    raise
                continue
            assert all(torch.equal(each, results[0]) for each in results), f"{name} differs from call to call"
    finally:
        torch.use_deterministic_algorithms(False)
