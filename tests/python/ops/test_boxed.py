"""Tier 2: what has no kernel of ours runs the CPU's as a command, if the shapes of its results can be known."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


def launches(work):
    """What `work` returns, and the launches it took."""
    torch.openreg.reset_launch_stats()
    result = work()
    return result, torch.openreg.launch_stats()


FAMILIES = {
    "in-place": lambda d: torch.arange(6.0, device=d).masked_fill_(torch.arange(6, device=d) > 2, 7.0),
    "a list in place": lambda d: torch._fused_sgd_(
        [torch.ones(3, device=d)],
        [torch.ones(3, device=d)],
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.5,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    ),
    "functional, by its out form": lambda d: torch.where(torch.arange(4, device=d) > 1, 1.0, 2.0),
    "functional, copied": lambda d: torch.roll(torch.arange(12.0, device=d).view(3, 4), 1, 0),
    "several results": lambda d: torch.kthvalue(torch.arange(3.0, device=d).flip(0), 2),
    "an out form that resizes its output in between": lambda d: F.binary_cross_entropy(
        torch.full((2, 3), 0.3, device=d), torch.ones(2, 3, device=d)
    ),
    "results beside changed arguments": lambda d: torch._native_batch_norm_legit(
        torch.arange(12.0, device=d).view(2, 3, 2),
        None,
        None,
        torch.zeros(3, device=d),
        torch.ones(3, device=d),
        True,
        0.1,
        1e-5,
    ),
    "no tensors": lambda d: torch.arange(3, 9, 2, device=d),
    "convolution": lambda d: F.conv2d(torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 2, 3, 3, device=d)),
    "a list of tensors": lambda d: torch.block_diag(torch.ones(2, 2, device=d), torch.ones(1, 1, device=d)),
    "indices on the CPU": lambda d: torch.zeros(4, device=d).index_put_(
        (torch.tensor([1, 2]),), torch.ones(2, device=d)
    ),
    "a complex number": lambda d: torch.zeros(2, 3, dtype=torch.complex64, device=d).index_fill_(
        1, torch.arange(0, 3, 2, device=d), 1 - 2j
    ),
    "a list of real numbers": lambda d: torch.histogram(torch.arange(6.0, device=d), bins=4, range=(0.5, 4.5)),
}


@pytest.mark.openreg_only
@pytest.mark.parametrize("name", FAMILIES)
def test_results_equal_the_cpu_without_waiting(name):
    work = FAMILIES[name]
    expected = work("cpu")
    for _ in range(2):  # the first call learns the shapes, the second one knows them
        got, stats = launches(lambda: work(DEVICE))
        assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats
        for g, e in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), strict=True):
            if e is not None:
                assert_close(g.cpu(), e)
                assert g.stride() == e.stride()


def test_the_trial_leaves_the_arguments_alone():
    """It runs on zeros of its own, also where a kernel changes what its schema does not name."""
    mean = torch.full((5,), 2.0, device=DEVICE)
    torch.native_batch_norm(
        torch.ones(7, 5, device=DEVICE), None, None, mean, torch.ones(5, device=DEVICE), True, 0.5, 1e-5
    )
    assert_close(mean.cpu(), torch.full((5,), 1.5))


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 2)])
def test_out_is_sized_at_the_call_with_pytorchs_warning(shape):
    a = torch.tensor([[1.0, -2.0], [3.0, 4.0], [5.0, 6.0]])
    results = []
    for device in ("cpu", DEVICE):
        out = torch.empty(shape, device=device)
        indices = torch.empty(shape, dtype=torch.long, device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.kthvalue(a.to(device), 2, dim=0, out=(out, indices))
        assert out.shape == (2,)
        results.append((out.tolist(), indices.tolist(), {str(w.message).split("\n")[0][:60] for w in caught}))
    assert results[0] == results[1]


def test_wrong_shapes_raise_at_the_call_after_right_ones():
    mask = torch.zeros(4, dtype=torch.bool, device=DEVICE)
    torch.zeros(4, device=DEVICE).masked_fill_(mask, 1.0)
    with pytest.raises(RuntimeError):
        torch.zeros(5, device=DEVICE).masked_fill_(mask, 1.0)
    torch.accelerator.synchronize()


@pytest.mark.openreg_only
def test_results_whose_shape_depends_on_elements_are_left_to_tier_3():
    x = torch.tensor([0, 3, 0, 5], device=DEVICE)
    for work in (torch.nonzero, torch.unique, lambda x: torch.masked_select(x, x > 0)):
        got, stats = launches(lambda work=work: work(x))
        assert stats["synchronous"] == 1
        assert torch.equal(got.cpu(), work(x.cpu()))


def test_values_of_numbers_are_not_remembered():
    x = torch.zeros(4, device=DEVICE)
    mask = torch.ones(4, dtype=torch.bool, device=DEVICE)
    for value in (1.0, 2.5, -3.0):
        assert x.masked_fill_(mask, value).tolist() == [value] * 4
    pairs = torch.zeros(4, dtype=torch.complex64, device=DEVICE)
    for value in (1 + 2j, 1 - 2j, -1 + 2j):
        assert pairs.masked_fill_(mask, value).tolist() == [value] * 4
    assert [torch.arange(n, device=DEVICE).numel() for n in (3, 5, 4)] == [3, 5, 4]


def test_values_of_lists_are_not_remembered():
    x = torch.zeros(4, device=DEVICE)
    for start, end in ((0.0, 1.0), (0.0, 4.0), (-4.0, 0.0)):
        assert torch.histogram(x, bins=1, range=(start, end)).bin_edges.tolist() == [start, end]


def test_a_result_that_is_an_argument_stays_it():
    x = torch.zeros(4, device=DEVICE)
    assert x.masked_fill_(x > 1, 2.0) is x
    out = torch.empty(2, device=DEVICE)
    assert torch.abs(torch.ones(2, device=DEVICE), out=out) is out
