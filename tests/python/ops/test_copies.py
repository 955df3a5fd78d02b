"""Copies: both ways, between devices, with conversion."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device


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


def test_zero_tensors():
    zero = torch._efficientzerotensor((3,), device=DEVICE)
    assert zero._is_zerotensor()
    assert zero.device == torch.device(f"{DEVICE}:0")
    assert torch.equal(zero.cpu(), torch.zeros(3))
    assert torch.equal((zero + torch.ones(3, device=DEVICE)).cpu(), torch.ones(3))
    target = torch.ones(3, device=DEVICE)
    assert torch.equal(target.copy_(zero).cpu(), torch.zeros(3))
    assert torch.equal(torch.ones(3).copy_(zero), torch.zeros(3))


def test_memory_of_a_copy_to_the_host_is_complete_when_it_returns():
    x = torch.zeros(256, 256, device=DEVICE)
    for i in range(100):
        x.add_(1.0)
        assert x.cpu()[17, 3].item() == i + 1


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
