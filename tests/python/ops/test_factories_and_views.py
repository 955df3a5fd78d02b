"""Factories, views, storage: operators that touch little or no memory."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.ones(2, 3, dtype=torch.int32, device=d),
        lambda d: torch.full((2,), 7.5, device=d),
        lambda d: torch.full((2,), True, device=d),
        lambda d: torch.arange(2, 20, 3, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.logspace(0, 1, 5, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.scalar_tensor(3.0, device=d),
        lambda d: torch.tensor([[1.0, 2.0]], device=d),
        lambda d: torch.tensor((), device=d),
        lambda d: torch.complex(torch.ones(2, device=d), torch.ones(2, device=d)),
        lambda d: torch.ones(3, device=d).new_zeros(2),
        lambda d: torch.zeros_like(torch.ones(2, 2, device=d).t()),
    ],
)
def test_factories_equal_the_cpus(make):
    got, expected = make(DEVICE), make("cpu")
    assert got.device == torch.device(f"{DEVICE}:0")
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    assert torch.equal(got.cpu(), expected)


def test_randperm_is_a_permutation():
    assert torch.randperm(100, device=DEVICE).sort().values.cpu().tolist() == list(range(100))


def test_layouts_that_no_device_has_are_refused():
    with pytest.raises(NotImplementedError):
        torch.empty(2, 2, layout=torch._mkldnn, device=DEVICE)


def test_empty_memory_is_filled_in_deterministic_mode(deterministic):
    assert torch.isnan(torch.empty(100, device=DEVICE)).all().item()
    assert torch.isnan(torch.empty_strided((2, 3), (1, 2), device=DEVICE)).all().item()
    assert (torch.empty(4, dtype=torch.int32, device=DEVICE) == torch.iinfo(torch.int32).max).all().item()
    x = torch.ones(2, device=DEVICE).resize_(10)
    assert x[:2].cpu().tolist() == [1.0, 1.0]
    assert torch.isnan(x[2:]).all().item()


def test_operators_that_are_not_deterministic_are_refused_at_the_call(deterministic):
    x = torch.zeros(4, device=DEVICE)
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        x.put_(torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE))


def test_determinism_is_asked_at_the_call_not_when_a_command_runs():
    x = torch.zeros(4, device=DEVICE)
    x.put_(torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE))
    torch.use_deterministic_algorithms(True)
    try:
        torch.accelerator.synchronize()
    finally:
        torch.use_deterministic_algorithms(False)
    assert x[0].item() == 1.0


def test_views_share_memory():
    x = torch.arange(12.0).to(DEVICE)
    views = [
        x.view(3, 4),
        x[2:5],
        x.as_strided((2, 2), (1, 2), 1),
        x.unfold(0, 3, 2),
        x.view(3, 4).t(),
        x.reshape(2, 6),
        x.detach(),
        x.view(torch.int32),
    ]
    for view in views:
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.fill_(5.0)
    assert all((view == 5.0).all().item() for view in views[:-1])


def test_complex_views():
    a = torch.randn(3, 2)
    x = a.to(DEVICE)
    z = torch.view_as_complex(x)
    assert_close(z.cpu(), torch.view_as_complex(a))
    z.mul_(2)
    assert_close(x.cpu(), a * 2)
    assert torch.view_as_real(z).data_ptr() == x.data_ptr()


def test_resize_keeps_the_contents():
    x = torch.arange(4.0).to(DEVICE)
    x.resize_(2)
    assert x.cpu().tolist() == [0.0, 1.0]
    x.resize_(4)
    assert x.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    x.resize_(1000)
    assert x[:4].cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert x.untyped_storage().nbytes() >= 4000


def test_resize_is_in_the_order_of_the_stream():
    for _ in range(50):
        x = torch.ones(1000, device=DEVICE)
        for _ in range(10):
            x.add_(1.0)
        x.resize_(100_000)
        assert x[:1000].sum().item() == 11_000.0


def test_set_takes_another_storage():
    x, y = torch.zeros(2, device=DEVICE), torch.arange(6.0).to(DEVICE)
    x.set_(y)
    assert x.data_ptr() == y.data_ptr() and x.shape == (6,)
    x.set_(y.untyped_storage(), 2, (2, 2), (2, 1))
    assert x.cpu().tolist() == [[2.0, 3.0], [4.0, 5.0]]
    x.set_()
    assert x.numel() == 0 and x.device == y.device
    x.set_(y.untyped_storage())
    assert x.cpu().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_addresses_are_the_devices():
    x = torch.ones(4, device=f"{DEVICE}:1")
    assert x.data_ptr() != 0
    assert not x.is_pinned()
    assert x.get_device() == 1


def test_fill_takes_scalars_and_tensors():
    x = torch.empty(3, device=DEVICE)
    assert x.fill_(2.5).cpu().tolist() == [2.5] * 3
    assert x.fill_(torch.tensor(1.5)).cpu().tolist() == [1.5] * 3
    assert x.fill_(torch.tensor(0.5, device=DEVICE)).cpu().tolist() == [0.5] * 3
    assert x.zero_().cpu().tolist() == [0.0] * 3


def test_fill_takes_tensors_of_other_devices():
    other = torch.tensor(2.5, device=f"{DEVICE}:1")
    assert torch.empty(3, device=f"{DEVICE}:0").fill_(other).cpu().tolist() == [2.5] * 3
    assert torch.empty(3).fill_(other).tolist() == [2.5] * 3


def test_expanded_tensors_can_be_filled():
    x = torch.zeros(1, device=DEVICE)
    x.expand(4).fill_(3.0)
    assert x.item() == 3.0
    x.expand(4).zero_()
    assert x.item() == 0.0


@pytest.mark.parametrize("geometry", [(), (0, (1000,), (1,))])
def test_set_to_a_storage_of_another_device_is_refused(geometry):
    x, storage = torch.zeros(2, device=DEVICE), torch.zeros(2).untyped_storage()
    with pytest.raises(RuntimeError, match="Attempted to set the storage of a tensor on device"):
        x.set_(storage, *geometry)
    assert storage.nbytes() == 8
    assert x.cpu().tolist() == [0.0, 0.0]
