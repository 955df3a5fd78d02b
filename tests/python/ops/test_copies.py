"""Copies: both ways, between devices, with conversion."""

from __future__ import annotations

import itertools

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def values(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_keeps_every_dtype(dtype):
    a = values(dtype)
    x = a.to(DEVICE)
    assert x.dtype == dtype
    assert torch.equal(x.cpu(), a)


@pytest.mark.parametrize("numel", [1, 100, 10_000, 1_000_000])
def test_round_trip_of_every_size(numel):
    a = torch.arange(numel)
    assert torch.equal(a.to(DEVICE).cpu(), a)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES[:4] + DTYPES[7:10], repeat=2)))
def test_dtype_conversion_each_way(source, target):
    a = values(source)
    expected = a.to(target)
    assert torch.equal(a.to(DEVICE).to(target).cpu(), expected)
    on_device = torch.empty(a.shape, dtype=target, device=DEVICE)
    on_device.copy_(a)
    assert torch.equal(on_device.cpu(), expected)
    on_host = torch.empty(a.shape, dtype=target)
    on_host.copy_(a.to(DEVICE))
    assert torch.equal(on_host, expected)


@pytest.mark.parametrize("numel", [12, 120_000])
def test_strided_and_broadcast_copies(numel):
    a = torch.randn(3, numel // 3)
    x = a.to(DEVICE)
    assert torch.equal(x.t().contiguous().cpu(), a.t())
    assert torch.equal(x[:, ::2].cpu(), a[:, ::2])
    target = torch.zeros(numel // 3, 3, device=DEVICE)
    target.t().copy_(a)
    assert torch.equal(target.cpu(), a.t())
    row = torch.randn(numel // 3, dtype=torch.float64)
    x.copy_(row)
    assert torch.equal(x.cpu(), row.float().expand(3, -1))


def test_a_copy_to_its_own_elements_does_nothing_and_does_not_wait():
    x = torch.arange(6.0, device=DEVICE).view(3, 2)
    with no_waits():
        x.copy_(x.view(3, 2))
        x[:, :1].copy_(x[:, :1])
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_a_conjugated_view_is_not_the_same_elements():
    x = torch.tensor([1 + 2j, 3 - 1j], device=DEVICE)
    x.copy_(x.conj())
    assert x.tolist() == [1 - 2j, 3 + 1j]


def test_copy_that_does_not_fit_has_the_sentence_of_the_cpu():
    with pytest.raises(RuntimeError) as expected:
        torch.zeros(2, 3).copy_(torch.zeros(4))
    for source in (torch.zeros(4), torch.zeros(4, device=DEVICE)):
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(2, 3, device=DEVICE).copy_(source)
        assert str(raised.value) == str(expected.value)


def test_copy_onto_itself_expanded_is_refused():
    x = torch.zeros(1, device=DEVICE).expand(4)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        x.copy_(torch.ones(4, device=DEVICE))


def test_between_devices():
    a = torch.randn(1000)
    x = a.to(f"{DEVICE}:0")
    y = x.to(f"{DEVICE}:1")
    assert y.device == torch.device(f"{DEVICE}:1")
    z = torch.empty(1000, dtype=torch.float64, device=f"{DEVICE}:0").copy_(y + 1)
    assert_close(z.cpu(), (a + 1).double())


def test_between_devices_is_ordered_with_both_streams():
    big = torch.randn(512, 512)
    x = big.to(f"{DEVICE}:0")
    for _ in range(20):
        y = (x @ x).to(f"{DEVICE}:1") * 2
        x = y.to(f"{DEVICE}:0")
        x = x / x.norm()
    expected = big
    for _ in range(20):
        expected = (expected @ expected) * 2
        expected = expected / expected.norm()
    assert_close(x.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_conj_and_neg_bits():
    a = torch.randn(4, dtype=torch.complex64)
    x = a.to(DEVICE)
    assert torch.equal(x.conj().cpu(), a.conj())
    assert torch.equal(x.conj().imag.cpu(), a.conj().imag)
    assert torch.equal(x.conj().clone().cpu(), a.conj().resolve_conj())
    assert torch.equal(a.conj().to(DEVICE).cpu(), a.conj())
    target = torch.empty(4, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(a)
    assert torch.equal(target.cpu(), a.conj().resolve_conj())
    assert torch.equal(x.conj().resolve_conj().cpu(), a.conj().resolve_conj())


def test_inverse_fourier_transform():
    a = torch.randn(8)
    assert_close(torch.fft.ifft(a.to(DEVICE)).cpu(), torch.fft.ifft(a))
    assert_close(torch.fft.ihfft(a.to(DEVICE)).cpu(), torch.fft.ihfft(a))


def test_zero_tensors():
    zero = torch._efficientzerotensor((3,), device=DEVICE)
    assert zero._is_zerotensor()
    assert zero.device == torch.device(f"{DEVICE}:0")
    assert torch.equal(zero.cpu(), torch.zeros(3))
    assert torch.equal((zero + torch.ones(3, device=DEVICE)).cpu(), torch.ones(3))
    target = torch.ones(3, device=DEVICE)
    assert torch.equal(target.copy_(zero).cpu(), torch.zeros(3))
    assert torch.equal(torch.ones(3).copy_(zero), torch.zeros(3))


def test_zero_tensor_in_the_backward_of_sgn():
    x = torch.randn(3, dtype=torch.complex64).to(DEVICE).requires_grad_()
    torch.sgn(x).abs().sum().backward()
    assert x.grad.shape == (3,)


def test_non_blocking_from_pinned_memory():
    a = torch.randn(100_000).pin_memory()
    x = a.to(DEVICE, non_blocking=True)
    assert torch.equal(x.cpu(), a)


def test_non_blocking_to_pinned_memory():
    x = torch.randn(100_000).to(DEVICE)
    target = torch.empty(100_000).pin_memory()
    target.copy_(x * 2, non_blocking=True)
    torch.accelerator.synchronize()
    assert_close(target, x.cpu() * 2)


def test_pinned_memory_is_not_reused_before_the_copy_has_run():
    for _ in range(50):
        a = torch.ones(50_000).pin_memory()
        x = a.to(DEVICE, non_blocking=True)
        del a
        torch.zeros(50_000).pin_memory()
        assert x.sum().item() == 50_000


def test_channels_last_is_kept():
    a = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    x = a.to(DEVICE)
    assert x.stride() == a.stride()
    assert torch.equal(x.cpu(), a)
    assert x.cpu().stride() == a.stride()


def test_empty_tensors():
    a = torch.empty(0, 3)
    assert a.to(DEVICE).cpu().shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_of_every_dtype(dtype):
    a = torch.tensor(3).to(dtype)
    assert a.to(DEVICE).item() == a.item()


def test_memory_of_a_copy_to_the_host_is_complete_when_it_returns():
    x = torch.zeros(256, 256, device=DEVICE)
    for i in range(100):
        x.add_(1.0)
        assert x.cpu()[17, 3].item() == i + 1


def test_copy_data_of_a_storage():
    x = torch.arange(10.0).to(DEVICE)
    clone = x.untyped_storage().clone()
    assert torch.tensor([], device=DEVICE).set_(clone).cpu().tolist() == x.cpu().tolist()


@pytest.mark.parametrize(("source", "target"), [(DEVICE, DEVICE), ("cpu", DEVICE), (DEVICE, "cpu")])
@pytest.mark.parametrize("shape", [(0,), (2, 3), (7,)])
def test_a_copy_may_resize_its_target(source, target, shape):
    a = torch.arange(6.0).view(2, 3)
    out = torch.full(shape, -1.0, device=target)
    got = torch._copy_from_and_resize(a.to(source), out)
    assert out.shape == (2, 3) and torch.equal(out.cpu(), a) and torch.equal(got.cpu(), a)


def test_tensors_of_the_host_are_copied_as_ever_while_the_device_places_results():
    torch.roll(torch.arange(12.0, device=DEVICE), 1).cpu()
    a = torch.arange(6.0)
    clone = torch._lazy_clone(a)
    clone += 1
    assert a.tolist() == [0, 1, 2, 3, 4, 5] and clone.tolist() == [1, 2, 3, 4, 5, 6]


VIEWS_OF_ONE_STORAGE = {
    "mm": lambda x: torch.mm(x.mH, x),
    "mm of the other order": lambda x: torch.mm(x, x.mH),
    "bmm": lambda x: torch.bmm(x.mH[None], x[None]),
    "addmm": lambda x: torch.addmm(x.conj(), x.mH, x),
    "a product of elements": lambda x: x.conj() * x,
    "a negated view": lambda x: torch.imag(x.conj()) * torch.imag(x),
    "a copy onto its conjugate": lambda x: (x.conj().copy_(x), x),
    "a copy onto a negated view": lambda x: (torch.imag(x.conj()).copy_(torch.imag(x)), x),
}


@pytest.mark.parametrize("name", VIEWS_OF_ONE_STORAGE)
def test_a_conj_or_neg_bit_is_only_that_of_its_tensor(name):
    """Also if that is the first tensor of the storage in the command."""
    torch.manual_seed(0)
    x = torch.randn(3, 3, dtype=torch.complex64)
    work = VIEWS_OF_ONE_STORAGE[name]
    got = work(x.to(DEVICE))
    expected = work(x.clone())
    for g, e in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(g.cpu().resolve_conj().resolve_neg(), e.resolve_conj().resolve_neg())
