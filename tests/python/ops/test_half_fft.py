"""Fourier transforms in half precision equal those in single precision, rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.usefixtures("seeded"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

NAMES = [f"{kind}{dims}" for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for dims in ("", "2", "n")]
TAKES_REAL = ("rfft", "ihfft")
GIVES_REAL = ("irfft", "hfft")
HALF = {torch.float32: torch.float16, torch.complex64: torch.complex32}


def take(name: str, *shape: int) -> torch.Tensor:
    """Numbers that half precision holds. Their last size is that of the spectrum, for transforms to real numbers."""
    real = name.startswith(TAKES_REAL)
    if name.startswith(GIVES_REAL):
        shape = (*shape[:-1], shape[-1] // 2 + 1)
    values = torch.randint(-8, 9, shape if real else (*shape, 2)) / 8
    return values if real else torch.view_as_complex(values)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.to(HALF[x.dtype])


def widened(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().to(torch.complex64 if x.dtype.is_complex else torch.float32)


def compare(got: torch.Tensor, exact: torch.Tensor) -> None:
    assert got.device.type == DEVICE and got.dtype == HALF[exact.dtype]
    assert got.shape == exact.shape and got.stride() == exact.stride()
    assert_close(widened(got), widened(rounded(exact)), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("shape", [(4, 8), (3, 6)], ids=["powers-of-two", "others"])
def test_transforms_and_their_gradients(name: str, norm: str | None, shape: tuple[int, int]) -> None:
    transform, x = getattr(torch.fft, name), take(name, *shape)
    here, there = x.requires_grad_(), rounded(x).to(DEVICE).detach().requires_grad_()
    exact, got = transform(here, norm=norm), transform(there, norm=norm)
    compare(got, exact)
    seed = torch.randint(-8, 9, exact.shape).to(exact.dtype) / 8
    exact.backward(seed)
    got.backward(rounded(seed).to(DEVICE))
    assert here.grad is not None and there.grad is not None
    compare(there.grad, here.grad)
    with torch.inference_mode():
        compare(transform(there.detach(), norm=norm), transform(here.detach(), norm=norm))


@pytest.mark.parametrize("name", NAMES)
def test_outputs(name: str) -> None:
    transform = getattr(torch.fft, name)
    x = take(name, 4, 8)
    exact = torch.empty(0, dtype=transform(x).dtype)
    transform(x, out=exact)
    out = torch.empty(0, dtype=HALF[exact.dtype], device=DEVICE)
    assert transform(rounded(x).to(DEVICE), out=out) is out
    compare(out, exact)


def test_real_numbers_become_complex() -> None:
    x = torch.randint(-8, 9, (4, 8)) / 8
    compare(torch.fft.fft(x.half().to(DEVICE)), torch.fft.fft(x))


def test_short_time_transforms() -> None:
    x, window = torch.randint(-8, 9, (2, 64)) / 8, torch.hann_window(16)
    exact = torch.stft(x, 16, window=window, return_complex=True)
    compare(torch.stft(x.half().to(DEVICE), 16, window=window.half().to(DEVICE), return_complex=True), exact)
    # As with other operators, the wider dtype decides.
    got = torch.stft(x.half().to(DEVICE), 16, window=window.to(DEVICE), return_complex=True)
    assert_close(got.cpu(), exact)
    back = torch.istft(rounded(exact).to(DEVICE), 16, window=window.half().to(DEVICE))
    assert back.dtype == torch.half
    assert_close(back.float().cpu(), x, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bad", [lambda x: torch.fft.fft(x, dim=3), lambda x: torch.fft.fft(x, n=0)])
def test_errors_are_those_of_floats(bad: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.ones(4, device=DEVICE)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        bad(x)
    with pytest.raises(expected.type) as got:
        bad(x.half())
    assert str(got.value) == str(expected.value)


def test_bfloat16_is_transformed_as_floats_since_2_14() -> None:
    x = torch.randint(-8, 9, (4, 8)) / 8
    narrow = x.bfloat16().to(DEVICE).requires_grad_()
    if torch.__version__ < (2, 14):
        with pytest.raises(RuntimeError, match="Unsupported dtype BFloat16"):
            torch.fft.fft(narrow)
        return
    result = torch.fft.rfft(narrow)
    assert_close(result.cpu(), torch.fft.rfft(x))
    result.abs().sum().backward()
    assert narrow.grad is not None and narrow.grad.dtype == torch.bfloat16
    out = torch.empty(0, dtype=torch.complex64, device=DEVICE)
    assert_close(torch.fft.fft2(narrow.detach(), out=out).cpu(), torch.fft.fft2(x))
    signal, window = torch.randint(-8, 9, (2, 64)) / 8, torch.ones(16)
    got = torch.stft(signal.bfloat16().to(DEVICE), 16, window=window.bfloat16().to(DEVICE), return_complex=True)
    assert_close(got.cpu(), torch.stft(signal, 16, window=window, return_complex=True))
