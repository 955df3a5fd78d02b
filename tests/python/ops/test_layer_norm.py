"""Layer normalisation: rows of any length are summed as accurately as by the CPU."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE

pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.native_layer_norm(x, x.shape[1:], None, None, 1e-5)


@pytest.mark.parametrize("size", [1, 31, 2048, 2049, 65_536, 3_000_001])
@pytest.mark.parametrize("offset", [0, 100])
def test_errors_do_not_grow_with_rows(size, offset):
    x = torch.rand(2, size) + offset
    exact = statistics(x.double())
    for got, by_cpu, expected in zip(statistics(x.to(DEVICE)), statistics(x), exact, strict=True):
        error, allowed = ((each.cpu() - expected).abs().max().item() for each in (got, by_cpu))
        assert error <= 2 * allowed + 1e-6 * expected.abs().max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_means_are_finite_where_sums_are_not(dtype):
    x = torch.linspace(0.5, 0.9, 5000, dtype=torch.float64).mul(torch.finfo(dtype).max).to(dtype).expand(2, -1)
    torch.testing.assert_close(statistics(x.to(DEVICE))[1].cpu(), statistics(x)[1])


@pytest.mark.parametrize(
    "dtype, value",
    # The squares of the last one's rounding errors are infinite.
    [(torch.float32, 0.1), (torch.float32, 1e10), (torch.float32, -3e30), (torch.float64, -3e200)],
)
def test_rows_of_one_number_are_zero(dtype, value):
    out, _, _ = statistics(torch.full((2, 1000), value, dtype=dtype, device=DEVICE))
    assert (out.abs() < 1e-3).all().item()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_so(value):
    x = torch.ones(2, 5)
    x[0, 3] = value
    _, mean, rstd = statistics(x.to(DEVICE))
    assert not mean[0].isfinite().item() and rstd[0].isnan().item()
    assert mean[1].item() == 1 and rstd[1].isfinite().item()


@pytest.mark.parametrize(
    ("dtype", "of_parameters"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.half, torch.half),
        (torch.half, torch.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_results_and_their_dtypes_are_the_cpus(dtype, of_parameters, weighted, biased):
    x = torch.randn(7, 40).to(dtype)
    parameters = [torch.randn(40).to(of_parameters) if given else None for given in (weighted, biased)]
    expected = torch.native_layer_norm(x, (40,), *parameters, 1e-5)
    on_device = [None if each is None else each.to(DEVICE) for each in parameters]
    got = torch.native_layer_norm(x.to(DEVICE), (40,), *on_device, 1e-5)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g.cpu(), e)
