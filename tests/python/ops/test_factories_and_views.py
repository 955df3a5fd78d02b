"""Factories, views, storage: operators that touch little or no memory."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device


def test_layouts_that_no_device_has_are_refused():
    with pytest.raises(NotImplementedError):
        torch.empty(2, 2, layout=torch._mkldnn, device=DEVICE)


def test_determinism_is_asked_at_the_call_not_when_a_command_runs():
    x = torch.zeros(4, device=DEVICE)
    x.put_(torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE))
    torch.use_deterministic_algorithms(True)
    try:
        torch.accelerator.synchronize()
    finally:
        torch.use_deterministic_algorithms(False)
    assert x[0].item() == 1.0


def test_resize_is_in_the_order_of_the_stream():
    for _ in range(50):
        x = torch.ones(1000, device=DEVICE)
        for _ in range(10):
            x.add_(1.0)
        x.resize_(100_000)
        assert x[:1000].sum().item() == 11_000.0


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
