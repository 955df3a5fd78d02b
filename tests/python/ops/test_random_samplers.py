"""Random operators that are more than a fill: permutations, samples, dropout, numbers from keys."""

from __future__ import annotations

import math

import pytest
import torch
import torch.func._random as keyed
import torch.nn.functional as F
from devices import DEVICE
from philox import GRID_THREADS, kolmogorov_smirnov, philox, reference_bits

pytestmark = pytest.mark.any_device


def seeded(seed: int) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def unit(bits: torch.Tensor) -> torch.Tensor:
    """(0, 1], as cuRAND makes it of 32 bits."""
    step = torch.tensor(2.0**-32)
    return bits.to(torch.float32) * step + step / 2


def bits_of_keys(n: int) -> int:
    return math.ceil(math.log2(n - (6 * n * n + 1) / (12 * math.log(0.9))))


def keys_of(numbers: torch.Tensor, n: int, seed: int) -> torch.Tensor:
    """The keys by which randperm(n) sorts these numbers, counted from 0, so that int64 holds them."""
    bits = bits_of_keys(n)
    threads = min(256 * math.ceil(n / 256), GRID_THREADS)
    slot, thread = numbers // threads, numbers % threads
    keys = torch.empty_like(numbers)
    for r in (slot // 2).unique().tolist():
        mine = slot // 2 == r
        four = philox(seed, 4 * r, thread[mine])
        second = slot[mine] % 2 == 1
        high, low = torch.where(second, four[:, 2], four[:, 0]), torch.where(second, four[:, 3], four[:, 1])
        # The range of 32-bit keys wants 64 bits of each: they are taken modulo 2^32 - 1, where 2^32 is 1.
        keys[mine] = (high + low) % (2**32 - 1) if bits <= 32 else high << 32 | low
    return keys & ((1 << bits) - 1)


# --- randperm


@pytest.mark.parametrize("n", [0, 1, 2, 7, 300, 5000, 50_000])
def test_randperm_is_a_permutation(n):
    x = torch.randperm(n, device=DEVICE, generator=seeded(3))
    assert x.dtype == torch.int64 and torch.equal(x.sort().values.cpu(), torch.arange(n))
    assert torch.equal(x, torch.randperm(n, device=DEVICE, generator=seeded(3)))


# With equal keys, below 32 bits, of 32 and above; in one part and in several; with more than one round of the grid.
@pytest.mark.parametrize(
    ("n", "seed", "equal"),
    [(200, 5, 0), (200, 22, 1), (2048, 13, 1), (2049, 57, 1), (5000, 35, 2), (25_000, 5, 0), (600_000, 5, 0)],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_randperm_sorts_by_cudas_keys_and_shuffles_equal_ones(n, seed, equal, dtype):
    keys = keys_of(torch.arange(n), n, seed)
    assert n - keys.unique().numel() == equal
    keys, expected = keys.sort(stable=True)
    offset = 4 * math.ceil(n / (2 * GRID_THREADS))
    for place in (keys.diff() == 0).nonzero().flatten().tolist():  # pairs: one number decides
        if philox(seed, offset, torch.tensor([place]))[0, 0] % 2 == 0:
            expected[[place, place + 1]] = expected[[place + 1, place]]
    generator = seeded(seed)
    numbers = torch.randperm(n, dtype=dtype, device=DEVICE, generator=generator)
    assert torch.equal(numbers.cpu(), expected.to(dtype))
    assert generator.get_offset() == offset + 4 * math.ceil(n / 4)


def test_randperm_of_numbers_that_share_no_word_of_64_bits_with_their_keys():
    n = 22_000_000
    assert bits_of_keys(n) - 12 + 25 > 64
    numbers = torch.randperm(n, device=DEVICE, generator=seeded(5)).cpu()
    assert torch.zeros(n, dtype=torch.bool).index_fill_(0, numbers, True).all()
    for place in (0, n // 2, n - 10_000):
        assert (keys_of(numbers[place : place + 10_000], n, 5).diff() > 0).all()


def test_randperm_has_every_permutation():
    torch.manual_seed(1)
    rows = torch.stack([torch.randperm(3, device=DEVICE) for _ in range(1200)]).cpu()
    counts = rows.unique(dim=0, return_counts=True)[1]
    assert counts.numel() == 6 and ((counts - 200).abs() < 5 * math.sqrt(200)).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.half, torch.bfloat16])
def test_randperm_of_other_dtypes_and_strides(dtype):
    out = torch.zeros(40, dtype=dtype, device=DEVICE)[::2]
    torch.randperm(20, out=out)
    assert torch.equal(out.sort().values.cpu(), torch.arange(20, dtype=dtype))


# --- multinomial


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.half, torch.bfloat16])
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_has_its_probabilities(dtype, replacement):
    torch.manual_seed(2)
    weights = torch.tensor([1.0, 0.0, 4.0, 5.0], dtype=dtype, device=DEVICE)
    n = 20_000
    if replacement:
        drawn = torch.multinomial(weights, n, replacement=True)
    else:
        drawn = torch.multinomial(weights.expand(n, 4), 1).flatten()
    shares = torch.bincount(drawn.cpu(), minlength=4) / n
    assert shares[1] == 0
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.0, 0.4, 0.5]), atol=0.015, rtol=0)


def test_multinomial_without_replacement_takes_each_category_once():
    rows = torch.rand(50, 9, device=DEVICE) + 0.1
    drawn = torch.multinomial(rows, 9)
    assert drawn.shape == (50, 9)
    assert torch.equal(drawn.sort(1).values.cpu(), torch.arange(9).expand(50, 9))


def test_multinomial_with_replacement_takes_cudas_numbers():
    weights = torch.tensor([[1.0, 2.0, 1.0], [3.0, 0.0, 1.0]], device=DEVICE)
    generator = seeded(9)
    drawn = torch.multinomial(weights, 130, replacement=True, generator=generator).cpu()
    for row in range(2):  # blocks of 128 threads: 256 for the 130 samples of a row
        first = unit(philox(9, 0, torch.arange(256 * row, 256 * row + 130))[:, 0])
        ends = (weights[row] / weights[row].sum()).cumsum(0).cpu()
        assert torch.equal(drawn[row], torch.searchsorted(ends, first))
    assert generator.get_offset() == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "categories", "samples"),
    [(1, 1, 2), (1, 1000, 1024), (1, 1000, 1025), (1, 3, 10_000), (3, 4097, 5000), (600, 7, 20), (65_540, 2, 3)],
)
def test_multinomial_with_replacement_by_blocks_of_samples_and_rows(rows, categories, samples, dtype):
    weights = torch.randint(0, 5, (rows, categories), generator=torch.Generator().manual_seed(1))
    weights[:, categories // 2] += (1 << 15) - weights.sum(1)  # sums and quotients are exact
    drawn = torch.multinomial(weights.to(DEVICE, dtype), samples, replacement=True, generator=seeded(9)).cpu()
    threads = 128 * math.ceil(samples / 128)
    for row in {0, rows // 2, rows - 1}:
        first = threads * (row % 65535)
        numbers = unit(philox(9, 4 * (row // 65535), torch.arange(first, first + samples))[:, 0])
        assert torch.equal(drawn[row], torch.searchsorted(weights[row].cumsum(0) / (1 << 15), numbers))


def test_multinomial_into_a_given_tensor():
    out = torch.empty(0, dtype=torch.long, device=DEVICE)
    result = torch.multinomial(torch.ones(5, device=DEVICE), 3, out=out)
    assert result is out and out.shape == (3,)
    weights = torch.rand(2, 50, device=DEVICE)
    gaps = torch.zeros(3000, 2, dtype=torch.long, device=DEVICE).t()
    torch.multinomial(weights, 3000, replacement=True, generator=seeded(1), out=gaps)
    assert torch.equal(gaps, torch.multinomial(weights, 3000, replacement=True, generator=seeded(1)))


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [float("inf"), 1.0], [float("nan"), 1.0], [0.0, 0.0]])
@pytest.mark.parametrize(("samples", "replacement"), [(1, False), (5, True)])
def test_what_is_no_distribution_is_an_error_of_the_stream(weights, samples, replacement):
    with pytest.raises(RuntimeError) as expected:
        torch.multinomial(torch.tensor(weights), samples, replacement)
    torch.multinomial(torch.tensor(weights, device=DEVICE), samples, replacement)
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accelerator.synchronize()
    assert str(expected.value) in str(raised.value)


# --- samplers that reject


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.5])
def test_gamma_passes_kolmogorov_and_smirnov(dtype, alpha):
    torch.manual_seed(4)
    x = torch._standard_gamma(torch.full((20_000,), alpha, dtype=dtype, device=DEVICE))
    x = x.cpu().double().sort().values
    assert kolmogorov_smirnov(x, torch.special.gammainc(torch.tensor(alpha, dtype=torch.float64), x)) < 1.95


@pytest.mark.parametrize("rate", [0.0, 0.4, 3.0, 9.9, 10.0, 50.0, 3000.0])
def test_poisson_has_its_moments_and_its_distribution(rate):
    torch.manual_seed(5)
    n = 20_000
    x = torch.poisson(torch.full((n,), rate, device=DEVICE)).cpu().double()
    assert (x == x.floor()).all() and x.min() >= 0
    assert abs(x.mean().item() - rate) <= 4 * math.sqrt(rate / n)
    assert abs(x.var().item() - rate) <= 4 * math.sqrt((2 * rate * rate + rate) / n)
    for k in (math.floor(rate), math.floor(rate + math.sqrt(rate))):
        # P(X <= k) is Q(k + 1, rate)
        p = torch.special.gammaincc(torch.tensor(k + 1.0).double(), torch.tensor(rate).double()).item()
        assert abs((x <= k).double().mean().item() - p) <= 4 * math.sqrt(p * (1 - p) / n) + 1e-9


@pytest.mark.parametrize(
    ("count", "p"), [(10.0, 0.3), (10.0, 0.9), (200.0, 0.4), (200.0, 0.97), (5.0, 0.0), (5.0, 1.0)]
)
def test_binomial_has_its_moments(count, p):
    torch.manual_seed(6)
    n = 20_000
    x = torch.binomial(torch.full((n,), count, device=DEVICE), torch.full((n,), p, device=DEVICE)).cpu().double()
    variance = count * p * (1 - p)
    assert x.min() >= 0 and x.max() <= count
    assert abs(x.mean().item() - count * p) <= 4 * math.sqrt(variance / n)
    assert abs(x.var().item() - variance) <= 0.06 * variance


def test_binomial_broadcasts():
    x = torch.binomial(torch.tensor([[3.0], [0.0]], device=DEVICE), torch.ones(4, device=DEVICE))
    assert torch.equal(x.cpu(), torch.tensor([[3.0], [0.0]]).expand(2, 4))


def test_dirichlet_sums_to_one_and_has_its_mean():
    torch.manual_seed(7)
    alphas = torch.tensor([1.0, 2.0, 5.0])
    x = torch._sample_dirichlet(alphas.to(DEVICE).expand(20_000, 3)).cpu()
    torch.testing.assert_close(x.sum(-1), torch.ones(20_000))
    torch.testing.assert_close(x.mean(0), alphas / 8, atol=0.01, rtol=0)


def test_distributions_of_torch_draw_on_the_device():
    torch.manual_seed(8)
    one = torch.tensor(2.0, device=DEVICE, requires_grad=True)
    for distribution in (
        torch.distributions.Gamma(one, one),
        torch.distributions.Beta(one, one),
        torch.distributions.Dirichlet(one.expand(3)),
        torch.distributions.StudentT(one),
    ):
        sample = distribution.rsample((5,))
        assert sample.device.type == DEVICE
        (gradient,) = torch.autograd.grad(sample.sum(), one)
        assert gradient.isfinite().item()


def test_an_element_depends_on_its_place_only():
    short, long = (torch.poisson(torch.full((n,), 20.0, device=DEVICE), generator=seeded(1)) for n in (100, 3000))
    assert torch.equal(short, long[:100])


# --- dropout and rrelu


@pytest.mark.openreg_only
@pytest.mark.parametrize("shape", [(64,), (4, 250), (33,), (2, 33), (4 * GRID_THREADS + 8,)])
def test_dropout_is_that_of_cudas_fused_kernel(shape):
    p = 0.3
    generator = torch.openreg.default_generators[torch.accelerator.current_device_index()]
    torch.manual_seed(11)
    x = torch.arange(1, math.prod(shape) + 1, dtype=torch.float32).view(shape)
    y, mask = torch.native_dropout(x.to(DEVICE), p, True)

    elements = x.numel()
    vector = next(size for size in (4, 2, 1) if elements % size == 0)
    threads = min(256 * math.ceil(elements / 256), GRID_THREADS)
    rounds = math.ceil(elements / (4 * threads))
    numbers = torch.stack([philox(11, 4 * r, torch.arange(threads)) for r in range(rounds)])
    # [rounds, threads, 4 / vector, vector] to [rounds, 4 / vector, threads, vector]
    numbers = numbers.view(rounds, threads, 4 // vector, vector).transpose(1, 2).reshape(-1)[:elements]
    kept = (unit(numbers) < torch.tensor(1 - p)).view(shape)
    assert torch.equal(mask.cpu(), kept)
    torch.testing.assert_close(y.cpu(), x * kept / (1 - p))
    assert generator.get_offset() == 4 * rounds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.half, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_scales_what_it_keeps(dtype, p):
    torch.manual_seed(12)
    x = torch.ones(8000, dtype=dtype, device=DEVICE, requires_grad=True)
    y = torch.dropout(x, p, True)
    y.sum().backward()
    values = y.detach().cpu()
    kept = values != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 0.02
    if p < 1:
        torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - p)))
    torch.testing.assert_close(x.grad.cpu(), values)


def test_dropout_of_complex_numbers():
    y = torch.dropout(torch.full((1000,), 1 + 2j, device=DEVICE), 0.5, True).cpu()
    assert set(y.tolist()) == {0j, 2 + 4j}


def test_dropout_counts_what_is_not_contiguous_by_its_indices():
    torch.manual_seed(1)
    flat, _ = torch.native_dropout(torch.ones(35, device=DEVICE), 0.5, True)  # an odd number: no vectors
    for x in (torch.ones(7, 5, device=DEVICE).t(), torch.ones(5, 14, device=DEVICE)[:, ::2]):
        torch.manual_seed(1)
        y, mask = torch.native_dropout(x, 0.5, True)
        assert torch.equal(y.reshape(-1), flat) and torch.equal(mask.reshape(-1), flat != 0)


def test_dropout_counts_vectors_in_the_order_of_memory():
    masks = []
    for x in (torch.ones(512, device=DEVICE), torch.ones(32, 16, device=DEVICE).t()):
        torch.manual_seed(1)
        masks.append(torch.native_dropout(x, 0.5, True)[1])
    assert torch.equal(masks[1].t().reshape(-1), masks[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.half])
def test_fused_dropout_is_dropout_by_the_probability_to_keep(dtype):
    x = torch.randn(4, 250, dtype=dtype, device=DEVICE)
    torch.manual_seed(3)
    expected, expected_mask = torch.native_dropout(x, 0.25, True)
    torch.manual_seed(3)
    y, mask = torch._fused_dropout(x, 0.75)
    assert mask.dtype == torch.uint8
    assert torch.equal(y, expected)
    assert torch.equal(mask, expected_mask)
    seeded = [torch._fused_dropout(x, 0.75, generator=torch.Generator(DEVICE).manual_seed(3))[1] for _ in range(2)]
    assert torch.equal(seeded[0], mask)
    assert torch.equal(seeded[1], mask)
    empty, no_mask = torch._fused_dropout(x[:0], 0.75)
    assert empty.shape == no_mask.shape == (0, 250)


@pytest.mark.parametrize("dtype", [torch.float32, torch.half])
def test_fused_dropout_has_the_gradient_of_what_it_keeps(dtype):
    x = torch.randn(1000, dtype=dtype, device=DEVICE, requires_grad=True)
    grad = torch.randn(1000, dtype=dtype, device=DEVICE)
    y, mask = torch._fused_dropout(x, 0.7)
    y.backward(grad)
    torch.testing.assert_close(x.grad.cpu(), (grad.cpu().float() * mask.cpu() / 0.7).to(dtype))


def test_masked_scale_rounds_once():
    x = torch.tensor([1.0, 3.0, 5.0], dtype=torch.half)
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
    scaled = torch._masked_scale(x.to(DEVICE), mask.to(DEVICE), 1.0003)
    assert torch.equal(scaled.cpu(), (x.double() * mask * 1.0003).half())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: torch._fused_dropout(x.long(), 0.5), NotImplementedError, "not implemented for 'Long'"),
        (lambda x: torch._masked_scale(x, x.bool(), 2.0), RuntimeError, "mask should be torch.uint8 dtype"),
        (lambda x: torch._masked_scale(x, x[:1].byte(), 2.0), RuntimeError, "expected a mask of shape"),
    ],
)
def test_wrong_arguments_of_fused_dropout_raise_at_the_call(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(3, device=DEVICE))


def test_dropout_of_nested_tensors_draws_on_the_device():
    nested = torch.nested.nested_tensor([torch.ones(50, device=DEVICE), torch.ones(30, device=DEVICE)])
    torch.manual_seed(2)
    state = torch.get_rng_state()
    first = F.dropout(nested, 0.5, True).to_padded_tensor(0.0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(F.dropout(nested, 0.5, True).to_padded_tensor(0.0), first)


def test_dropout_keeps_the_memory_format_and_takes_what_has_gaps():
    x = torch.rand(2, 4, 3, 3, device=DEVICE)
    last = x.to(memory_format=torch.channels_last)
    assert F.dropout(last).is_contiguous(memory_format=torch.channels_last)
    y = F.dropout(x[:, ::2], 0.5).cpu()
    expected = 2 * x[:, ::2].cpu()
    assert torch.equal(y[y != 0], expected[y != 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rrelu_draws_slopes_for_what_is_negative(dtype):
    x = torch.linspace(-2, 2, 4001, dtype=dtype)
    y = F.rrelu(x.to(DEVICE), 0.1, 0.4, training=True).cpu()
    assert torch.equal(y[x > 0], x[x > 0])
    slopes = (y / x)[x < 0]
    assert slopes.min() > 0.0999 and slopes.max() < 0.4001
    assert abs(slopes.mean().item() - 0.25) < 0.01
    torch.testing.assert_close(F.rrelu(x.to(DEVICE), 0.1, 0.4).cpu(), F.leaky_relu(x, 0.25))


def test_rrelu_may_write_over_its_input_and_leaves_what_is_not_a_number():
    x = torch.tensor([-1.0, 2.0, math.nan], device=DEVICE)
    noise = torch.zeros(3, device=DEVICE)
    y = torch.ops.aten.rrelu_with_noise(x, noise, 0.25, 0.25, True)
    torch.testing.assert_close(noise.cpu(), torch.tensor([0.25, 1.0, 1.0]))
    torch.ops.aten.rrelu_with_noise_(x, noise, 0.25, 0.25, True)
    torch.testing.assert_close(x, y, equal_nan=True)


def test_rrelu_takes_cudas_numbers_and_its_gradient_the_noise():
    x = torch.full((700,), -1.0, device=DEVICE, requires_grad=True)
    torch.manual_seed(13)
    y = F.rrelu(x, 0.0, 1.0, training=True)
    bits, _ = reference_bits(13, 0, 700)
    torch.testing.assert_close(-y.detach().cpu(), unit(bits))
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), unit(bits))
    torch.manual_seed(13)
    z = torch.full((700,), -1.0, device=DEVICE)
    assert torch.equal(F.rrelu_(z, 0.0, 1.0, training=True), y.detach())


# --- normal with tensors


def test_normal_of_tensors_broadcasts_and_scales():
    torch.manual_seed(14)
    n = 20_000
    mean = torch.tensor([[0.0], [5.0]], device=DEVICE)
    x = torch.normal(mean, torch.full((n,), 2.0, device=DEVICE)).cpu()
    torch.testing.assert_close(x.mean(1), torch.tensor([0.0, 5.0]), atol=0.06, rtol=0)
    torch.testing.assert_close(x.std(1), torch.tensor([2.0, 2.0]), atol=0.05, rtol=0)
    assert abs(torch.normal(1.0, torch.full((n,), 3.0, device=DEVICE)).std().item() - 3) < 0.1
    assert abs(torch.normal(torch.full((n,), 4.0, device=DEVICE), 0.5).mean().item() - 4) < 0.02
    out = torch.empty(0, device=DEVICE)
    assert torch.normal(mean, torch.ones(3, device=DEVICE), out=out).shape == (2, 3) == out.shape


def test_a_negative_deviation_in_a_tensor_is_an_error_of_the_stream():
    torch.normal(torch.zeros(2, device=DEVICE), torch.tensor([1.0, -1.0], device=DEVICE))
    with pytest.raises(torch.AcceleratorError, match=r"normal expects all elements of std >= 0\.0"):
        torch.accelerator.synchronize()


# --- keys


def test_keys_split_and_fold_as_philox_says():
    key = torch.tensor([[42, 0], [7, 1 << 40]], dtype=torch.uint64, device=DEVICE)
    children = keyed.split(key, 3).cpu().view(torch.int64)
    assert children.shape == (3, 2, 2)
    for i in range(3):
        for row, (seed, offset) in enumerate([(42, 0), (7, 1 << 40)]):
            n = [int(v) for v in philox(seed, 4 * (offset + i), torch.arange(1))[0]]
            expected = torch.tensor([n[0] | n[1] << 32, n[2] | n[3] << 32], dtype=torch.uint64).view(torch.int64)
            assert torch.equal(children[i, row], expected)
        assert torch.equal(keyed.fold_in(key, i).cpu().view(torch.int64), children[i])


def test_folding_in_the_largest_number():
    key = keyed.key(1, device=DEVICE)
    n = [int(v) for v in philox(1, 4 * (2**63 - 1), torch.arange(1))[0]]
    expected = torch.tensor([n[0] | n[1] << 32, n[2] | n[3] << 32], dtype=torch.uint64)
    assert torch.equal(keyed.fold_in(key, 2**63 - 1).cpu(), expected)


def test_uniform_from_a_key_is_a_function_of_it():
    key = keyed.key(99, device=DEVICE)
    x = keyed.uniform(key, (10_001,), low=-1.0, high=3.0).cpu()
    calls = torch.arange(2501)
    numbers = torch.cat([philox(99, 4 * int(c), torch.arange(1)) for c in calls[:100]]).flatten()
    unit24 = (numbers & 0xFFFFFF).float() / (1 << 24)
    assert torch.equal(x[:400], unit24 * 4 - 1)
    assert kolmogorov_smirnov(x.double().sort().values, (x.double().sort().values + 1) / 4) < 1.95
    assert torch.equal(x, keyed.uniform(key, (10_001,), low=-1.0, high=3.0).cpu())


def test_uniform_doubles_from_a_key_take_two_numbers_each():
    x = keyed.uniform(keyed.key(99, device=DEVICE), (200,), low=-1.0, high=3.0, dtype=torch.float64).cpu()
    numbers = torch.cat([philox(99, 4 * call, torch.arange(1)) for call in range(100)]).view(200, 2)
    unit53 = ((numbers[:, 0] << 32 | numbers[:, 1]) & (2**53 - 1)).double() / 2**53
    assert torch.equal(x, unit53 * 4 - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.half, torch.bfloat16])
def test_normal_from_a_key_passes_kolmogorov_and_smirnov(dtype):
    x = keyed.normal(keyed.key(1, device=DEVICE), (20_000,), mean=1.0, std=2.0, dtype=dtype).cpu().double()
    assert abs(x.mean().item() - 1) < 0.06 and abs(x.std().item() - 2) < 0.05
    if dtype in (torch.float32, torch.float64):
        x = x.sort().values
        assert kolmogorov_smirnov(x, torch.special.ndtr((x - 1) / 2)) < 1.95


def test_each_key_of_a_batch_fills_its_part():
    keys = keyed.split(keyed.key(3, device=DEVICE), 4)
    whole = torch.empty(4, 10, 5, device=DEVICE)
    keyed.normal_(keys.view(4, 1, 1, 2), whole)
    for key, part in zip(keys, whole, strict=True):
        assert torch.equal(keyed.normal(key, (10, 5)), part)
    strided = torch.empty(10, 4, device=DEVICE).t()
    keyed.uniform_(keys.view(4, 1, 2), strided)
    assert torch.equal(strided[2], keyed.uniform(keys[2], (10,)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k: keyed.uniform_(k, torch.empty(3, dtype=torch.int, device=DEVICE)), "must be a floating point"),
        (lambda k: keyed.uniform_(k[:1], torch.empty(3, device=DEVICE)), r"must have shape \(2,\)"),
        (lambda k: keyed.uniform_(k.view(torch.int64), torch.empty(3, device=DEVICE)), "must have dtype uint64"),
        (lambda k: keyed.normal_(k, torch.empty(3, device=f"{DEVICE}:1")), "same device"),
        (lambda k: keyed.normal_(k.view(1, 2).expand(2, 2), torch.empty(3, device=DEVICE)), "not broadcastable"),
        (lambda k: keyed.normal_(k.view(1, 1, 2), torch.empty(3, device=DEVICE)), "must have ndim"),
        (lambda k: keyed.split(k, 0), "must be positive"),
        (lambda k: keyed.split(k[:1]), "must have shape"),
        (lambda k: keyed.fold_in(k.view(torch.int64), 1), "must have dtype uint64"),
    ],
)
def test_wrong_keys_are_refused_at_the_call(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(keyed.key(1, device=DEVICE))


# --- all of them


def random_operators():
    """ATen's, by their tag or a generator among their arguments; those of keys by their name."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or not hasattr(torch.ops.aten, packet):
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if op is None:
            continue
        takes_generator = any("Generator" in str(argument.type) for argument in op._schema.arguments)
        if torch.Tag.nondeterministic_seeded in op.tags or takes_generator or packet.startswith("_philox"):
            yield name


@pytest.mark.openreg_only
def test_every_random_operator_is_ours_or_made_of_ours():
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    without_dropout = {"aten::_fused_sdp_choice"}
    # Since torch 2.14 the CPU has kernels for keys, with CUDA's numbers. These operators are new: the CPU's serve.
    of_keys = {"aten::_philox_key_fold_in.Tensor", "aten::_philox_randint_"}
    names = list(random_operators())
    assert len(names) > 100
    left = [
        name
        for name in names
        if not has_kernel(name, "PrivateUse1") and not any(has_kernel(name, key) for key in composite)
    ]
    # What the CPU has neither belongs to other vendors' libraries.
    assert {
        name for name in left if has_kernel(name, "CPU") or "_philox" in name
    } == without_dropout | of_keys.intersection(names)


@pytest.mark.openreg_only
def test_no_draw_waits():
    p = torch.full((6, 6), 0.5, device=DEVICE)
    key = keyed.key(1, device=DEVICE)
    torch.openreg.reset_launch_stats()
    torch.randperm(10, device=DEVICE)
    torch.multinomial(p, 2)
    torch.multinomial(p, 9, replacement=True)
    torch.poisson(p)
    torch.binomial(p, p)
    torch._standard_gamma(p)
    torch._sample_dirichlet(p)
    F.rrelu(p, training=True)
    F.dropout(p)
    torch.normal(p, p)
    torch.normal(0.0, p)
    torch.normal(p, 1.0)
    keyed.normal(key, (3,))
    keyed.uniform(keyed.split(key)[0], (3,))
    stats = torch.openreg.launch_stats()
    assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats


@pytest.mark.parametrize(
    "op",
    [
        lambda d: torch.randperm(-1, device=d),
        lambda d: torch.randperm(300, dtype=torch.uint8, device=d),
        lambda d: torch.randperm(3000, dtype=torch.half, device=d),
        lambda d: torch.randperm(3, dtype=torch.bool, device=d),
        lambda d: torch.multinomial(torch.rand(2, 2, 2, device=d), 1),
        lambda d: torch.multinomial(torch.tensor(1.0, device=d), 1),
        lambda d: torch.multinomial(torch.ones(2, dtype=torch.int, device=d), 1),
        lambda d: torch.multinomial(torch.ones(2, device=d), 0),
        lambda d: torch.multinomial(torch.ones(2, device=d), 3),
        lambda d: torch.multinomial(torch.ones(2, device=d), 1, out=torch.empty(1, device=d)),
        lambda d: torch.multinomial(torch.ones(1, device=d).expand((1 << 24) + 1), 1),
        lambda d: torch.multinomial(torch.ones(4, device=d).to(torch.float8_e4m3fn), 2, replacement=True),
        lambda d: torch.empty(1, 3, device=d).expand(3, 3).normal_(),
        lambda d: torch.poisson(torch.ones(2, dtype=torch.int, device=d)),
        lambda d: torch.binomial(torch.ones(2, dtype=torch.int, device=d), torch.ones(2, device=d)),
        lambda d: torch.binomial(torch.ones(2, device=d), torch.ones(2, dtype=torch.int, device=d)),
        lambda d: torch.binomial(torch.ones(2, device=d), torch.ones(2, dtype=torch.double, device=d)),
        lambda d: torch.binomial(torch.ones(2, device=d), torch.ones(3, device=d)),
        lambda d: torch.binomial(torch.ones(2, device=d).half(), torch.ones(2, device=d).half()),
        lambda d: torch._standard_gamma(torch.ones(2, device=d).half()),
        lambda d: torch._sample_dirichlet(torch.ones(2, device=d).long()),
        lambda d: torch.ops.aten.rrelu_with_noise(torch.ones(3, device=d), torch.ones(2, device=d), 0.1, 0.2, True),
        lambda d: F.rrelu(torch.ones(3, device=d), 0.3, 0.2, training=True),
        lambda d: F.rrelu(torch.ones(3, device=d), 0.3, math.inf, training=True),
        lambda d: F.rrelu(torch.ones(3, device=d).int(), training=True),
        lambda d: torch.dropout(torch.ones(3, device=d).int(), 0.5, True),
        lambda d: torch.dropout(torch.ones(3, device=d), 1.5, True),
        lambda d: torch.normal(torch.zeros(2, device=d), -1.0),
        lambda d: torch.normal(torch.zeros(2, device=d), torch.zeros(3, device=d)),
        lambda d: torch.normal(torch.zeros(2, device=d).int(), 1.0),
        lambda d: torch.normal(0.0, torch.zeros(2, device=d).cfloat()),
        lambda d: torch.normal(torch.zeros(2, device=d), 1.0, out=torch.empty(5, device=d)),
    ],
)
def test_wrong_arguments_raise_at_the_call_as_on_the_cpu(op):
    with pytest.raises(Exception) as expected:
        op("cpu")
    with pytest.raises(type(expected.value)) as raised:
        op(DEVICE)
    assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize(
    "op",
    [
        lambda d, g: torch.empty(3, device=d).uniform_(generator=g),
        lambda d, g: torch.randperm(4, device=d, generator=g),
        lambda d, g: torch.multinomial(torch.ones(2, device=d), 1, generator=g),
        lambda d, g: torch.poisson(torch.ones(2, device=d), generator=g),
        lambda d, g: torch.binomial(torch.ones(2, device=d), torch.ones(2, device=d), generator=g),
        lambda d, g: torch.normal(torch.zeros(3, device=d), torch.ones(3, device=d), generator=g),
        lambda d, g: torch.normal(0.0, torch.ones(3, device=d), generator=g),
        lambda d, g: torch.normal(torch.ones(2, device=d), 1.0, generator=g),
        lambda d, g: torch.bernoulli(torch.ones(3, device=d), generator=g),
    ],
)
def test_a_generator_of_another_device_is_refused_at_the_call(op):
    for other in ("cpu", f"{DEVICE}:1"):
        with pytest.raises(RuntimeError, match="generator"):
            op(DEVICE, torch.Generator(other))
    with pytest.raises(RuntimeError, match=r"Expected a 'cpu' (generator device|device type for generator) but found"):
        op("cpu", torch.Generator(DEVICE))
