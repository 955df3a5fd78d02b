"""Random operators: CUDA's layout of Philox, asynchronous, and distributed as they say."""

from __future__ import annotations

import math

import pytest
import torch
from devices import DEVICE
from philox import GRID_THREADS, kolmogorov_smirnov, philox, reference_bits

pytestmark = pytest.mark.any_device

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def reference_uniform(bits: torch.Tensor, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    step = torch.tensor(2.0**-32)
    unit = bits.to(torch.float32) * step + step / 2
    value = unit * torch.tensor(high - low) + torch.tensor(low)
    return torch.where(value == high, torch.tensor(low), value)


@pytest.mark.parametrize("elements", [1, 255, 1000, 5000, GRID_THREADS, 4 * GRID_THREADS + 7])
def test_uniform_is_cudas_bit_for_bit(elements):
    generator = torch.Generator(DEVICE).manual_seed(1234 + (5 << 33))
    offset = 0
    for low, high in ((0.0, 1.0), (-2.0, 3.0)):
        x = torch.empty(elements, device=DEVICE).uniform_(low, high, generator=generator)
        bits, offset = reference_bits(1234 + (5 << 33), offset, elements)
        assert torch.equal(x.cpu(), reference_uniform(bits, low, high))
        assert generator.get_offset() == offset


def test_seed_42_gives_the_numbers_that_every_user_of_cuda_has_seen():
    torch.manual_seed(42)
    expected = torch.tensor([0.6130, 0.0101, 0.3984, 0.0403, 0.1563, 0.4825])
    torch.testing.assert_close(torch.rand(6, device=DEVICE).cpu(), expected, atol=5e-5, rtol=0)


def test_integers_take_the_same_bits():
    generator = torch.Generator(DEVICE).manual_seed(7)
    x = torch.randint(-5, 12, (3000,), device=DEVICE, generator=generator)
    bits, _ = reference_bits(7, 0, 3000)
    assert torch.equal(x.cpu(), bits % 17 - 5)


def test_normal_is_box_and_muller_of_the_same_bits():
    generator = torch.Generator(DEVICE).manual_seed(7)
    elements = 1024
    x = torch.empty(elements, device=DEVICE).normal_(1.0, 2.0, generator=generator)
    numbers = philox(7, 0, torch.arange(elements)).double()
    radius = (-2 * ((numbers[:, 0] + 0.5) * 2.0**-32).log()).sqrt()
    angle = 2 * math.pi * (numbers[:, 1] + 0.5) * 2.0**-32
    torch.testing.assert_close(x.cpu().double(), 1 + 2 * radius * angle.sin(), rtol=1e-5, atol=1e-5)


CONTINUOUS = {
    "uniform": (lambda x: x.uniform_(-1, 3), lambda x: (x + 1) / 4),
    "normal": (lambda x: x.normal_(2, 3), lambda x: torch.special.ndtr((x - 2) / 3)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.7), lambda x: torch.special.ndtr((x.log() - 0.5) / 0.7)),
    "exponential": (lambda x: x.exponential_(2.0), lambda x: 1 - (-2 * x).exp()),
    "cauchy": (lambda x: x.cauchy_(1.0, 0.5), lambda x: ((x - 1) / 0.5).atan() / math.pi + 0.5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions_pass_kolmogorov_and_smirnov(name, dtype):
    draw, cdf = CONTINUOUS[name]
    torch.manual_seed(20)
    x = draw(torch.empty(40_000, dtype=dtype, device=DEVICE)).cpu().double().sort().values
    assert kolmogorov_smirnov(x, cdf(x)) < 1.95


@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_hold_in_every_precision(dtype):
    torch.manual_seed(3)
    x = torch.empty(300_000, dtype=dtype, device=DEVICE)
    unit = x.uniform_().cpu()
    assert unit.min() >= 0 and unit.max() < 1
    assert x.exponential_().cpu().min() > 0
    assert x.normal_().isfinite().all().item()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.bool])
def test_bernoulli_has_its_probability(dtype):
    torch.manual_seed(5)
    n, p = 40_000, 0.3
    for x in (
        torch.empty(n, dtype=dtype, device=DEVICE).bernoulli_(p),
        torch.empty(n, dtype=dtype, device=DEVICE).bernoulli_(torch.full((n,), p, device=DEVICE)),
    ):
        values = x.cpu().double()
        assert set(values.unique().tolist()) == {0.0, 1.0}
        assert abs(values.mean().item() - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_certain_outcomes_are_certain():
    # The one number in 2^25 that is 1 makes them wrong on CUDA.
    torch.manual_seed(0)
    n = 1 << 27
    assert torch.empty(n, device=DEVICE).bernoulli_(1.0).sum(dtype=torch.float64).item() == n
    assert torch.equal(torch.empty(10, device=DEVICE).geometric_(1 - 1e-9).cpu(), torch.ones(10))


def test_bernoulli_takes_all_of_a_doubles_bits():
    torch.bernoulli(torch.tensor([0.5, 1 + 1e-9], dtype=torch.float64, device=DEVICE))
    with pytest.raises(torch.AcceleratorError, match="p_in >= 0 && p_in <= 1"):
        torch.accelerator.synchronize()


def test_bernoulli_counts_in_the_order_of_memory_as_on_cuda():
    p = torch.full((8, 4), 0.5, device=DEVICE)
    torch.manual_seed(1)
    expected = torch.bernoulli(p)
    torch.manual_seed(1)
    assert torch.equal(torch.empty_like(p).t().bernoulli_(p.t()).t(), expected)
    torch.manual_seed(1)
    assert torch.equal(torch.empty(8, 8, device=DEVICE)[:, ::2].bernoulli_(p), expected)


def test_bernoulli_of_a_tensor_takes_each_elements_probability():
    p = torch.tensor([0.0, 1.0], device=DEVICE).repeat(5000)
    assert torch.equal(torch.bernoulli(p), p)


def test_geometric_has_its_mean_and_smallest_value():
    torch.manual_seed(6)
    x = torch.empty(40_000, device=DEVICE).geometric_(0.25).cpu()
    assert x.min() == 1
    assert abs(x.mean().item() - 4) < 4 * math.sqrt(12 / 40_000)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_random_fills_the_whole_range(dtype):
    torch.manual_seed(8)
    x = torch.empty(20_000, dtype=dtype, device=DEVICE).random_().cpu().double()
    top = 1.0 if dtype == torch.bool else float(torch.iinfo(dtype).max)
    assert x.min() >= 0 and x.max() <= top
    assert abs(x.mean().item() / top - 0.5) < 0.02


def test_wide_ranges_of_integers():
    torch.manual_seed(9)
    x = torch.randint(-(1 << 62), 1 << 62, (20_000,), device=DEVICE).cpu()
    assert x.min() >= -(1 << 62) and x.max() < 1 << 62
    assert abs(x.double().mean().item()) / (1 << 62) < 0.02


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32])
def test_the_full_range_of_64_bits_takes_all_of_them(dtype):
    x = torch.empty(1000, dtype=dtype, device=DEVICE)
    x.random_(-(1 << 63), None, generator=torch.Generator(DEVICE).manual_seed(7))
    numbers = philox(7, 0, torch.arange(1000))
    expected = numbers[:, 0] << 32 | numbers[:, 1]
    assert torch.equal(x.cpu(), expected.to(dtype))


def test_the_order_is_that_of_memory_as_on_cuda():
    flat = torch.rand(24, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(1)).cpu()
    transposed = torch.empty(4, 6, device=DEVICE).t()
    transposed.uniform_(generator=torch.Generator(DEVICE).manual_seed(1))
    assert torch.equal(transposed.t().cpu().reshape(-1), flat)
    base = torch.zeros(4, 12, device=DEVICE)
    base[:, ::2].uniform_(generator=torch.Generator(DEVICE).manual_seed(1))
    assert torch.equal(base[:, ::2].cpu().reshape(-1), flat)
    assert base[:, 1::2].abs().sum().item() == 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.normal_(),
        lambda x: x.random_(0, 100),
        lambda x: torch.dropout(x.fill_(1), 0.5, True),
        lambda x: torch.poisson(x.fill_(3)),
        lambda x: torch.randperm(x.numel(), device=x.device),
        lambda x: torch.multinomial(x[:50].fill_(1), x.numel(), replacement=True),
        lambda x: torch.multinomial(x.fill_(1).view(7000, 100), 9, replacement=True),
    ],
    ids=["normal", "random", "dropout", "poisson", "randperm", "multinomial", "multinomial of rows"],
)
def test_the_numbers_do_not_depend_on_the_thread_that_computes_them(draw):
    numbers = []
    threads = torch.get_num_threads()
    try:
        for count, wait in ((1, True), (2, True), (2, False)):
            torch.set_num_threads(count)
            torch.manual_seed(4)
            drawn = draw(torch.empty(700_000, device=DEVICE))
            if wait:
                torch.accelerator.synchronize()  # this thread may compute it, with its team
            else:
                while not torch.accelerator.current_stream().query():  # an engine does
                    pass
            numbers.append(drawn.cpu())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(numbers[0], numbers[1]) and torch.equal(numbers[0], numbers[2])


@pytest.mark.openreg_only
def test_no_draw_waits():
    torch.openreg.reset_launch_stats()
    x = torch.empty(100, device=DEVICE)
    for draw in (x.uniform_, x.normal_, x.exponential_, x.cauchy_, x.log_normal_, x.random_, x.bernoulli_):
        draw()
    torch.nn.functional.dropout(x)
    torch.randn(3, device=DEVICE)
    torch.bernoulli(torch.full((3,), 0.5, device=DEVICE))
    stats = torch.openreg.launch_stats()
    assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats


def test_complex_numbers_are_pairs():
    torch.manual_seed(2)
    x = torch.randn(20_000, dtype=torch.complex64, device=DEVICE).cpu()
    assert abs(x.real.std().item() - math.sqrt(0.5)) < 0.02
    assert abs(x.imag.std().item() - math.sqrt(0.5)) < 0.02


def test_a_probability_out_of_range_is_an_error_of_the_stream():
    torch.bernoulli(torch.tensor([0.5, 2.0], device=DEVICE))
    with pytest.raises(torch.AcceleratorError, match=r"bernoulli_\.Tensor failed"):
        torch.accelerator.synchronize()


CERTAIN = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize(
    "view",
    [lambda p: p.t(), lambda p: p[:, 1:].expand(3, 40), lambda p: p[0].expand(40, 2), lambda p: p.flip(1)[::2]],
    ids=["transposed", "expanded rows", "expanded columns", "with steps"],
)
def test_bernoulli_takes_each_probability_from_its_place(view, dtype):
    probabilities = view(CERTAIN.to(DEVICE, dtype))
    expected = view(CERTAIN.to(dtype))
    assert torch.equal(torch.bernoulli(probabilities).cpu(), expected)
    for out_dtype in (torch.float32, torch.float64, torch.int64):
        out = torch.full(expected.shape, 7, dtype=out_dtype, device=DEVICE)
        assert torch.equal(out.bernoulli_(probabilities).cpu(), expected.to(out_dtype))
