"""Random numbers: each replay draws those that the calls would have drawn from the generator as it is then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

openreg = torch.openreg
N = 600

DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: torch.rand(N, device="openreg"),
    "randn": lambda x: torch.randn(N, device="openreg", dtype=torch.float64),
    "randint": lambda x: torch.randint(7, (N,), device="openreg"),
    "rand_like": lambda x: torch.rand_like(x),
    "randperm": lambda x: torch.randperm(N, device="openreg"),
    "bernoulli": lambda x: torch.bernoulli(x),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "normal_": lambda x: x.clone().normal_(2.0, 3.0),
    "normal": lambda x: torch.normal(x, x + 1),
    "uniform_": lambda x: x.clone().uniform_(2.0, 3.0),
    "exponential_": lambda x: x.clone().exponential_(),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "geometric_": lambda x: x.clone().geometric_(0.2),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "random_": lambda x: x.clone().random_(0, 100),
    "multinomial": lambda x: torch.multinomial(x + 0.1, 5),
    "multinomial, replaced": lambda x: torch.multinomial(x + 0.1, 50, replacement=True),
    "dropout": lambda x: F.dropout(x, 0.4),
    "native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_dropout": lambda x: F.dropout2d(x.view(2, 3, 10, 10), 0.5),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "poisson": lambda x: torch.poisson(x * 9),
    "binomial": lambda x: torch.binomial(x * 9, x),
    "gamma": lambda x: torch._standard_gamma(x + 1),
    "dirichlet": lambda x: torch._sample_dirichlet(x.view(6, 100) + 1),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x.view(6, 100)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(2, 1, 30, 10)] * 3, dropout_p=0.3),
    "fractional pool": lambda x: F.fractional_max_pool2d(x.view(2, 3, 10, 10), 2, output_size=4),
}


@pytest.mark.parametrize("name", DRAWS)
def test_replays_draw_what_eager_draws_from_the_same_state(name):
    def draw(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([DRAWS[name](x).flatten().double(), torch.rand(3, device="openreg", dtype=torch.float64)])

    x = torch.linspace(0, 1, N, device="openreg")
    draw(x)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = draw(x)
    openreg.manual_seed(5)
    values = [x.clone(), x.flip(0), x * 0.5, x * 0.7, x.clone()]
    expected = []
    for value in values:
        expected.append(draw(value).cpu())
    state = openreg.get_rng_state()
    openreg.manual_seed(5)
    for value, wanted in zip(values, expected, strict=True):
        x.copy_(value)
        graph.replay()
        assert torch.equal(y.cpu(), wanted)
    assert torch.equal(openreg.get_rng_state(), state)
    assert not torch.equal(expected[0], expected[-1]) and not torch.equal(expected[1], expected[2])


def test_draws_of_eager_and_of_replays_follow_each_other():
    torch.rand(5, device="openreg")
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        a = torch.rand(5, device="openreg")
        b = torch.randn(7, device="openreg")

    def eager() -> list[torch.Tensor]:
        return [torch.rand(5, device="openreg").cpu(), torch.randn(7, device="openreg").cpu()]

    openreg.manual_seed(3)
    expected = [eager() for _ in range(4)]
    openreg.manual_seed(3)
    got = [eager()]
    graph.replay()
    got.append([a.cpu(), b.cpu()])
    got.append(eager())
    graph.replay()
    got.append([a.cpu(), b.cpu()])
    assert all(torch.equal(g, e) for gs, es in zip(got, expected, strict=True) for g, e in zip(gs, es, strict=True))


def test_queued_replays_draw_what_the_state_was_when_they_were_queued():
    x = torch.zeros(3, 8, device="openreg")
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        x[1:] = x[:-1].clone()
        x[0] = torch.rand(8, device="openreg")
    openreg._sleep(20_000_000)
    for seed in (1, 2, 3):
        openreg.manual_seed(seed)
        graph.replay()
    for row, seed in enumerate((3, 2, 1)):
        openreg.manual_seed(seed)
        assert torch.equal(x[row].cpu(), torch.rand(8, device="openreg").cpu())


def test_a_capture_takes_no_numbers():
    openreg.manual_seed(4)
    state = openreg.get_rng_state()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        torch.rand(100, device="openreg")
    assert torch.equal(openreg.get_rng_state(), state)


@pytest.mark.parametrize("registered", [False, True])
def test_each_generator_gives_a_replay_numbers_of_its_own(registered):
    own, another = torch.Generator("openreg").manual_seed(1), torch.Generator("openreg").manual_seed(2)
    graph = openreg.CUDAGraph()
    for generator in (own, own, another) if registered else ():
        graph.register_generator_state(generator)
    with openreg.graph(graph):
        x = torch.rand(6, device="openreg", generator=own)
        y = torch.rand(6, device="openreg")
        z = torch.rand(6, device="openreg", generator=another)
    default = openreg.default_generators[0]
    for seed in (7, 8):
        parts = [(own, x, seed), (default, y, seed + 1), (another, z, seed + 2)]
        for generator, _, own_seed in parts:
            generator.manual_seed(own_seed)
        graph.replay()
        graph.replay()
        for generator, got, own_seed in parts:
            assert generator.get_offset() == 8
            generator.manual_seed(own_seed)
            torch.rand(6, device="openreg", generator=generator)
            assert torch.equal(got.cpu(), torch.rand(6, device="openreg", generator=generator).cpu())
    with pytest.raises(RuntimeError, match="before the capture"):
        graph.register_generator_state(torch.Generator("openreg"))


def test_a_generator_that_two_streams_of_a_capture_draw_from_joins_it_once():
    generator = torch.Generator("openreg").manual_seed(1)
    graph, side = openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph):
        side.wait_stream(openreg.current_stream())
        with openreg.stream(side):
            x = torch.rand(6, device="openreg", generator=generator)
        openreg.current_stream().wait_stream(side)
        y = torch.rand(6, device="openreg", generator=generator)
    graph.replay()
    generator.manual_seed(1)
    for got in (x, y):
        assert torch.equal(got.cpu(), torch.rand(6, device="openreg", generator=generator).cpu())


def test_a_generator_with_a_shared_state_is_known_to_the_graph():
    generator = torch.Generator("openreg").manual_seed(1)
    other = torch.Generator("openreg")
    other.graphsafe_set_state(generator.graphsafe_get_state())
    graph = openreg.CUDAGraph()
    graph.register_generator_state(other)
    with openreg.graph(graph):
        x = torch.rand(6, device="openreg", generator=generator)
    other.manual_seed(3)
    graph.replay()
    assert torch.equal(x.cpu(), torch.rand(6, device="openreg", generator=generator.manual_seed(3)).cpu())


NOT_CAPTURED = "while the current stream is captured"
SAME_SEED = "set_current_seed can be called during stream capture only if new seed is the same as the original seed"

# What CUDAGeneratorImpl refuses during a capture: a replay would not repeat it. The call, and a part of the message.
REFUSED: dict[str, tuple[Callable[[torch.Generator], object], str]] = {
    "manual_seed": (lambda generator: openreg.manual_seed(99), SAME_SEED),
    "manual_seed_all": (lambda generator: openreg.manual_seed_all(99), SAME_SEED),
    "torch.manual_seed": (lambda generator: torch.manual_seed(99), SAME_SEED),
    "Generator.manual_seed": (lambda generator: generator.manual_seed(99), SAME_SEED),
    "seed": (lambda generator: openreg.seed(), NOT_CAPTURED),
    "seed_all": (lambda generator: openreg.seed_all(), NOT_CAPTURED),
    "Generator.seed": (lambda generator: generator.seed(), NOT_CAPTURED),
    "set_offset": (lambda generator: generator.set_offset(4), NOT_CAPTURED),
    "get_offset": (lambda generator: generator.get_offset(), NOT_CAPTURED),
    "_set_rng_state_offset": (lambda generator: openreg._set_rng_state_offset(4), NOT_CAPTURED),
    "_get_rng_state_offset": (lambda generator: openreg._get_rng_state_offset(), NOT_CAPTURED),
    "clone_state": (lambda generator: generator.clone_state(), NOT_CAPTURED),
    "a new generator": (lambda generator: torch.Generator("openreg"), "cannot be created"),
    "set_rng_state, another seed": (lambda generator: openreg.set_rng_state(state_of(99, 0)), SAME_SEED),
    "set_state, another seed": (lambda generator: generator.set_state(state_of(99, 0)), SAME_SEED),
    "set_state, no offset": (lambda generator: generator.set_state(state_of(1, 3)), "RNG offset is invalid"),
    "set_state, too long": (lambda generator: generator.set_state(torch.zeros(17, dtype=torch.uint8)), "wrong size"),
}


def state_of(seed: int, offset: int) -> torch.Tensor:
    return torch.tensor([seed, offset]).view(torch.uint8)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_during_a_capture_raises_and_changes_nothing(name):
    call, message = REFUSED[name]
    generator = torch.Generator("openreg").manual_seed(1)
    openreg.manual_seed(1)
    openreg.default_generators[1].manual_seed(99)  # is not captured
    before = openreg.get_rng_state()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        x = torch.rand(6, device="openreg", generator=generator)
        with pytest.raises(RuntimeError, match=message):
            call(generator)
        y = torch.rand(6, device="openreg", generator=generator)
    assert torch.equal(openreg.get_rng_state(), before)
    assert torch.equal(generator.get_state(), before)
    graph.replay()
    for got in (x, y):
        assert torch.equal(got.cpu(), torch.rand(6, device="openreg").cpu())


def rewind(generator: torch.Generator) -> list[torch.Tensor]:
    state = generator.get_state()
    first = torch.rand(6, device="openreg", generator=generator)
    generator.set_state(state)
    return [first, torch.rand(9, device="openreg", generator=generator)]


def rewind_to_the_begin(generator: torch.Generator) -> list[torch.Tensor]:
    drawn = torch.rand(6, device="openreg", generator=generator)
    state = generator.get_state().clone()
    state[8:] = 0
    generator.set_state(state)
    return [drawn]


def skip(generator: torch.Generator) -> list[torch.Tensor]:
    seed, offset = generator.get_state().view(torch.int64).tolist()
    generator.set_state(state_of(seed, offset + 40))
    return [torch.rand(6, device="openreg", generator=generator)]


def exchange_states(generator: torch.Generator) -> list[torch.Tensor]:
    state = generator.graphsafe_get_state()
    first = torch.rand(6, device="openreg", generator=generator)
    generator.graphsafe_set_state(state)
    return [first, torch.rand(9, device="openreg", generator=state)]


def fork(generator: torch.Generator) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[0, 1], device_type="openreg"):
        inside = torch.rand(6, device="openreg")
    return [inside, torch.rand(9, device="openreg"), torch.rand(9, device="openreg", generator=generator)]


def seed_again(generator: torch.Generator) -> list[torch.Tensor]:
    generator.manual_seed(generator.initial_seed())
    return [torch.rand(6, device="openreg", generator=generator)]


ALLOWED = [rewind, rewind_to_the_begin, skip, exchange_states, fork]


@pytest.mark.parametrize("of_default", [True, False])
@pytest.mark.parametrize("program", ALLOWED)
def test_what_cuda_allows_during_a_capture_has_the_effect_that_it_has_in_eager_mode(program, of_default):
    """Starts at offset 0, as the states of a capture do, so that rewinding to the begin means the same in both."""
    generator = openreg.default_generators[0] if of_default else torch.Generator("openreg")
    openreg.manual_seed(3)
    generator.manual_seed(3)
    expected = [each.cpu() for each in program(generator)]
    states = [openreg.get_rng_state(), generator.get_state()]
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        results = program(generator)
    for seed in (4, 3):
        openreg.manual_seed(seed)
        generator.manual_seed(seed)
        graph.replay()
    assert all(torch.equal(got.cpu(), wanted) for got, wanted in zip(results, expected, strict=True))
    assert [openreg.get_rng_state().tolist(), generator.get_state().tolist()] == [each.tolist() for each in states]


def test_the_state_in_a_capture_is_the_seed_and_the_position_in_the_graph():
    generator = torch.Generator("openreg").manual_seed(5)
    torch.rand(9, device="openreg", generator=generator)
    with openreg.graph(openreg.CUDAGraph()):
        states = [generator.get_state().view(torch.int64).tolist()]
        torch.rand(9, device="openreg", generator=generator)
        states.append(generator.get_state().view(torch.int64).tolist())
        assert generator.initial_seed() == 5
        seed_again(generator)
    assert states == [[5, 0], [5, 4]]
    assert generator.get_state().view(torch.int64).tolist() == [5, 4]


def test_the_same_seed_may_be_set_in_a_capture_without_an_effect():
    generator = torch.Generator("openreg").manual_seed(5)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        first = torch.rand(6, device="openreg", generator=generator)
        (second,) = seed_again(generator)
    graph.replay()
    assert not torch.equal(first.cpu(), second.cpu())


def test_a_capture_that_fails_leaves_the_generators_usable():
    generator = torch.Generator("openreg").manual_seed(5)
    before = generator.get_state()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            with openreg.graph(openreg.CUDAGraph()):
                rewind(generator)[0].cpu()
        assert torch.equal(generator.get_state(), before)
    expected = [each.cpu() for each in rewind(generator)]
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        results = rewind(generator)
    generator.manual_seed(5)
    graph.replay()
    assert all(torch.equal(got.cpu(), wanted) for got, wanted in zip(results, expected, strict=True))


def test_a_generator_of_another_device_is_not_captured_with_it():
    openreg.default_generators[1].manual_seed(1)
    kept = torch.ones(1, device="openreg:1")  # a capture forbids to take memory that the cache does not have
    with openreg.graph(openreg.CUDAGraph()):
        torch.rand(6, device="openreg")
        openreg.default_generators[1].manual_seed(7)
        torch.rand(6, device="openreg:1")
        assert openreg.default_generators[1].get_offset() == 4
    del kept


def test_a_generator_of_the_cpu_cannot_be_registered():
    with pytest.raises(RuntimeError, match="the generator has the wrong device type"):
        openreg.CUDAGraph().register_generator_state(torch.Generator())


def test_a_generator_serves_two_graphs():
    graphs, results = [], []
    for _ in range(2):
        graph = openreg.CUDAGraph()
        with openreg.graph(graph):
            results.append(torch.rand(6, device="openreg"))
        graphs.append(graph)
    openreg.manual_seed(1)
    for i in (0, 1, 1, 0):
        graphs[i].replay()
    got = [result.cpu() for result in results]
    openreg.manual_seed(1)
    expected = [torch.rand(6, device="openreg").cpu() for _ in range(4)]
    assert torch.equal(got[0], expected[3]) and torch.equal(got[1], expected[2])
