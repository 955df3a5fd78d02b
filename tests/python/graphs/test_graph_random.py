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


def test_generators_that_are_registered_count_and_others_are_refused():
    known, unknown = torch.Generator("openreg").manual_seed(1), torch.Generator("openreg")
    graph = openreg.CUDAGraph()
    graph.register_generator_state(known)
    graph.register_generator_state(known)
    with openreg.graph(graph):
        x = torch.rand(6, device="openreg", generator=known)
        y = torch.rand(6, device="openreg")
    for seed in (7, 8):
        known.manual_seed(seed)
        openreg.manual_seed(seed + 1)
        graph.replay()
        graph.replay()
        for generator, got in ((known.manual_seed(seed), x), (openreg.default_generators[0].manual_seed(seed + 1), y)):
            torch.rand(6, device="openreg", generator=generator)
            assert torch.equal(got.cpu(), torch.rand(6, device="openreg", generator=generator).cpu())
    with pytest.raises(RuntimeError, match=r"register_generator_state\(\)"):
        with openreg.graph(openreg.CUDAGraph()):
            torch.ones(2, device="openreg").add_(1)
            torch.rand(6, device="openreg", generator=unknown)
    with pytest.raises(RuntimeError, match="before the capture"):
        graph.register_generator_state(unknown)
    assert torch.rand(6, device="openreg", generator=unknown).sum().item() > 0


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: openreg.get_rng_state(),
        lambda: openreg.set_rng_state(torch.zeros(16, dtype=torch.uint8)),
        lambda: openreg.manual_seed(99),
        lambda: openreg.seed(),
        lambda: openreg.initial_seed(),
        lambda: openreg.default_generators[0].set_offset(4),
        lambda: openreg.default_generators[0].get_offset(),
    ],
    ids=["get_rng_state", "set_rng_state", "manual_seed", "seed", "initial_seed", "set_offset", "get_offset"],
)
def test_states_are_not_touched_inside_a_capture(call):
    openreg.manual_seed(1)
    before = openreg.get_rng_state()
    with pytest.raises(RuntimeError, match="while the current stream is captured"):
        with openreg.graph(openreg.CUDAGraph()):
            torch.ones(2, device="openreg").add_(1)
            call()
    assert torch.equal(openreg.get_rng_state(), before)


def test_a_generator_of_the_cpu_cannot_be_registered():
    with pytest.raises(RuntimeError, match="belongs to another kind of device"):
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
