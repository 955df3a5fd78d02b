"""Lazy clones: tensors that share memory until one of them is written to."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1.0),
        lambda x: x.fill_(2.0),
        lambda x: x.masked_fill_(x > 0, 2.0),
        lambda x: x.copy_(torch.full((4,), 2.0)),
        lambda x: x.copy_(torch.full((4,), 2.0, device="openreg:1")),
        lambda x: torch.mul(x, 2.0, out=x),
    ],
)
def test_a_lazy_clone_does_not_share_what_is_written(write):
    x = torch.ones(4, device="openreg")
    clone = torch._lazy_clone(x)
    write(clone)
    assert clone.cpu().tolist() == [2.0] * 4
    assert x.cpu().tolist() == [1.0] * 4
    other = torch._lazy_clone(x)
    write(x)
    assert x.cpu().tolist() == [2.0] * 4
    assert other.cpu().tolist() == [1.0] * 4


class Clones:
    """A tensor of ones and a lazy clone of it, ready for two streams of which one has work to do first."""

    def __init__(self) -> None:
        self.quick, self.busy = torch.Stream("openreg"), torch.Stream("openreg")
        with self.quick:
            self.original = torch.ones(1 << 16, device="openreg")
            self.clone = torch._lazy_clone(self.original)
        self.busy.wait_stream(self.quick)
        with self.busy:
            x = torch.rand(1200, 1200, device="openreg")
            for _ in range(4):
                x = (x @ x) / 600


def test_the_last_owner_of_shared_memory_writes_after_others_have_got_their_copies():
    t = Clones()
    with t.busy:
        t.clone.add_(5)
    with t.quick:
        t.original.mul_(100)
    torch.accelerator.synchronize()
    assert t.clone.eq(6).all() and t.original.eq(100).all()


def test_the_last_owner_of_shared_memory_may_be_the_clone():
    t = Clones()
    with t.busy:
        t.original.add_(5)
    with t.quick:
        t.clone.mul_(100)
    torch.accelerator.synchronize()
    assert t.original.eq(6).all() and t.clone.eq(100).all()


def test_the_last_owner_of_shared_memory_writes_after_clones_that_are_gone_have_been_read():
    t = Clones()
    with t.busy:
        clone = torch._lazy_clone(t.original)
        read = clone * 2
    del clone, t.clone
    with t.quick:
        t.original.mul_(100)
    torch.accelerator.synchronize()
    assert read.eq(2).all() and t.original.eq(100).all()


def test_shared_memory_is_not_reused_before_it_has_been_copied():
    t = Clones()
    with t.busy:
        t.clone.add_(5)
    del t.original
    with t.quick:
        torch.zeros(1 << 16, device="openreg")
    torch.accelerator.synchronize()
    assert t.clone.eq(6).all()


def test_a_lazy_clone_can_be_recorded_on_a_stream():
    t = Clones()
    with t.busy:
        read = t.clone * 2
    t.clone.record_stream(t.busy)
    del t.clone, t.original
    with t.quick:
        torch.zeros(1 << 16, device="openreg")
    torch.accelerator.synchronize()
    assert read.eq(2).all()


def test_asking_for_the_address_of_a_lazy_clone_is_a_write():
    t = Clones()
    with t.busy:
        t.clone.data_ptr()
    with t.quick:
        t.original.mul_(100)
    torch.accelerator.synchronize()
    assert t.clone.eq(1).all() and t.original.eq(100).all()


def test_a_lazy_clone_gets_its_memory_on_its_own_device():
    x = torch.ones(4, device="openreg:1")
    clone = torch._lazy_clone(x).add_(1)
    assert clone.untyped_storage().device == torch.device("openreg:1")
    assert clone.cpu().tolist() == [2.0] * 4
    assert x.cpu().tolist() == [1.0] * 4


@pytest.mark.parametrize("elements", [2, 8])
def test_a_lazy_clone_that_is_resized_shares_nothing_any_more(elements):
    x = torch.ones(4, device="openreg")
    clone = torch._lazy_clone(x)
    clone.untyped_storage().resize_(4 * elements)
    clone = clone.as_strided((elements,), (1,)).fill_(3)
    assert clone.cpu().tolist() == [3.0] * elements
    assert x.add_(1).cpu().tolist() == [2.0] * 4
