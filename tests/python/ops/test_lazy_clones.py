"""Lazy clones: tensors that share memory until one of them is written to."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1.0),
        lambda x: x.fill_(2.0),
        lambda x: x.masked_fill_(x > 0, 2.0),
        lambda x: x.copy_(torch.full((4,), 2.0)),
        lambda x: x.copy_(torch.full((4,), 2.0, device=f"{DEVICE}:1")),
        lambda x: torch.mul(x, 2.0, out=x),
    ],
)
def test_a_lazy_clone_does_not_share_what_is_written(write):
    x = torch.ones(4, device=DEVICE)
    clone = torch._lazy_clone(x)
    write(clone)
    assert clone.cpu().tolist() == [2.0] * 4
    assert x.cpu().tolist() == [1.0] * 4
    other = torch._lazy_clone(x)
    write(x)
    assert x.cpu().tolist() == [2.0] * 4
    assert other.cpu().tolist() == [1.0] * 4


@pytest.mark.parametrize("operator", [torch.native_batch_norm, torch.batch_norm_update_stats])
def test_running_statistics_are_written_though_no_schema_declares_it(operator):
    mean, variance = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    clones = [torch._lazy_clone(mean), torch._lazy_clone(variance)]
    x = torch.arange(24.0, device=DEVICE).view(2, 3, 4)
    if operator is torch.native_batch_norm:
        operator(x, None, None, *clones, True, 0.1, 1e-5)
    else:
        operator(x, *clones, 0.1)
    assert mean.eq(0).all() and variance.eq(1).all()
    assert clones[0].ne(0).all() and clones[1].ne(1).all()


class Clones:
    """A tensor of ones and a lazy clone of it, ready for two streams of which one has work to do first."""

    def __init__(self) -> None:
        self.quick, self.busy = torch.Stream(DEVICE), torch.Stream(DEVICE)
        with self.quick:
            self.original = torch.ones(1 << 16, device=DEVICE)
            self.clone = torch._lazy_clone(self.original)
        self.busy.wait_stream(self.quick)
        with self.busy:
            x = torch.rand(1200, 1200, device=DEVICE)
            for _ in range(4):
                x = (x @ x) / 600


@pytest.mark.parametrize(("first", "last"), [("clone", "original"), ("original", "clone")])
def test_the_last_owner_of_shared_memory_writes_after_the_other_has_got_its_copy(first, last):
    t = Clones()
    with t.busy:
        getattr(t, first).add_(5)
    with t.quick:
        getattr(t, last).mul_(100)
    torch.accelerator.synchronize()
    assert getattr(t, first).eq(6).all() and getattr(t, last).eq(100).all()


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
        torch.zeros(1 << 16, device=DEVICE)
    torch.accelerator.synchronize()
    assert t.clone.eq(6).all()


def test_a_lazy_clone_can_be_recorded_on_a_stream():
    t = Clones()
    with t.busy:
        read = t.clone * 2
    t.clone.record_stream(t.busy)
    del t.clone, t.original
    with t.quick:
        torch.zeros(1 << 16, device=DEVICE)
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
    x = torch.ones(4, device=f"{DEVICE}:1")
    clone = torch._lazy_clone(x).add_(1)
    assert clone.untyped_storage().device == torch.device(f"{DEVICE}:1")
    assert clone.cpu().tolist() == [2.0] * 4
    assert x.cpu().tolist() == [1.0] * 4


@pytest.mark.parametrize("elements", [2, 8])
def test_a_lazy_clone_that_is_resized_shares_nothing_any_more(elements):
    x = torch.ones(4, device=DEVICE)
    clone = torch._lazy_clone(x)
    clone.untyped_storage().resize_(4 * elements)
    clone = clone.as_strided((elements,), (1,)).fill_(3)
    assert clone.cpu().tolist() == [3.0] * elements
    assert x.add_(1).cpu().tolist() == [2.0] * 4


@pytest.mark.parametrize(
    "read",
    [torch.nonzero, torch.argwhere, torch.unique, lambda x: x[x > 1], torch.Tensor.to_sparse],
)
def test_what_reads_on_the_calling_thread_leaves_a_lazy_clone_as_it_is(read):
    x = torch.arange(6.0).view(2, 3)
    clone = torch._lazy_clone(x.to(DEVICE))
    result = read(clone)
    assert torch._C._is_cow_tensor(clone)
    assert torch.equal(result.cpu().to_dense(), read(x).to_dense())


@pytest.mark.openreg_only
def test_a_write_that_gets_no_memory_leaves_both_as_they_were():
    x = torch.ones(4, device=DEVICE)
    clone = torch._lazy_clone(x)
    with torch.openreg.faults.inject("oom", at="allocation:1"), pytest.raises(torch.OutOfMemoryError):
        clone.add_(1)
    x.add_(1)
    assert clone.tolist() == [1.0] * 4 and x.tolist() == [2.0] * 4
    clone.add_(2)
    del x
    assert clone.tolist() == [3.0] * 4
