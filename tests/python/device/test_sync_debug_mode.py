"""torch.openreg.set_sync_debug_mode: finding the operators that make the host wait."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from devices import DEVICE


@pytest.fixture(autouse=True)
def default_mode() -> Iterator[None]:
    yield
    torch.openreg.set_sync_debug_mode("default")


WAITING = [
    lambda x: x.item() if x.dim() == 0 else x[0].item(),
    lambda x: x.cpu(),
    lambda x: torch.nonzero(x),
    lambda x: x[x > 0],
    lambda x: torch.ones(1 << 16).to(DEVICE),  # from pageable memory
    lambda x: torch.ones(4).to(DEVICE),
    lambda x: torch.tensor([1, 2], device=DEVICE),
]


def test_modes_are_those_of_cuda():
    assert torch.openreg.get_sync_debug_mode() == 0
    for number, name in enumerate(("default", "warn", "error")):
        torch.openreg.set_sync_debug_mode(name)
        assert torch.openreg.get_sync_debug_mode() == number
        torch.openreg.set_sync_debug_mode(number)
        assert torch.openreg.get_sync_debug_mode() == number
    with pytest.raises(RuntimeError, match=r"got 'loud', expected one of `default`, `warn`, `error`"):
        torch.openreg.set_sync_debug_mode("loud")


@pytest.mark.parametrize("wait", WAITING)
def test_error_refuses_the_wait(wait):
    x = torch.ones(4, device=DEVICE)
    torch.openreg.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing openreg operation"):
        wait(x)
    torch.openreg.set_sync_debug_mode("default")
    wait(x)


@pytest.mark.parametrize("wait", WAITING)
def test_warn_names_the_line(wait):
    x = torch.ones(4, device=DEVICE)
    torch.openreg.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wait(x)
    sentences = [w for w in caught if "called a synchronizing openreg operation" in str(w.message)]
    assert sentences and all(w.filename == __file__ for w in sentences)


def test_launches_and_explicit_synchronisation_are_allowed():
    torch.openreg.set_sync_debug_mode("error")
    x = torch.ones(4, device=DEVICE)
    y = (x + 1).masked_fill_(x > 0, 3.0).abs()
    torch.accelerator.synchronize()
    torch.accelerator.current_stream().synchronize()
    torch.openreg.set_sync_debug_mode("default")
    assert y.tolist() == [3.0] * 4
