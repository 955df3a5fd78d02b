"""Indexing with masks: the host waits for the number of true elements only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import DEVICE
from waits import no_waits

pytestmark = pytest.mark.any_device

Tensor = torch.Tensor
# x: [4, 5, 6]; rows, planes and all: masks of its first, first two and all dimensions
CASES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "rows": lambda x, rows, planes, all: x[rows],
    "planes": lambda x, rows, planes, all: x[planes],
    "elements": lambda x, rows, planes, all: x[all],
    "nothing": lambda x, rows, planes, all: x[all & ~all],
    "everything": lambda x, rows, planes, all: x[all | ~all],
    "a later dimension": lambda x, rows, planes, all: x[:, planes[0]],
    "two masks": lambda x, rows, planes, all: x[rows & ~rows, planes[0] & ~planes[0]],
    "a mask and indices": lambda x, rows, planes, all: x[planes, torch.tensor(2, device=x.device)],
    "indices and a mask": lambda x, rows, planes, all: x[torch.tensor([1], device=x.device), planes[0]],
    "a mask and a slice": lambda x, rows, planes, all: x[rows, 1:3],
    "a mask and a new dimension": lambda x, rows, planes, all: x[None, rows],
    "a transposed tensor": lambda x, rows, planes, all: x.transpose(0, 1)[planes.t()],
    "a transposed mask": lambda x, rows, planes, all: x.transpose(0, 2)[all.transpose(0, 2)],
    "a mask of one element": lambda x, rows, planes, all: x[rows[0]],
    "bytes": lambda x, rows, planes, all: x[rows.to(torch.uint8)],
    "a mask of the CPU": lambda x, rows, planes, all: x[rows.cpu()],
    "integers": lambda x, rows, planes, all: (x * 9).int()[planes],
    "elements of an unsigned type": lambda x, rows, planes, all: (x.abs() * 9).to(torch.uint16)[all],
}


def tensors(device: str, seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    x = torch.randn(4, 5, 6)
    return [x.to(device), (x[:, 0, 0] > 0).to(device), (x[:, :, 0] > 0).to(device), (x > 0).to(device)]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_the_cpu(name):
    for seed in range(3):
        results = {}
        for device in ("cpu", DEVICE):
            x, *masks = tensors(device, seed)
            x.requires_grad_()
            result = CASES[name](x, *masks)
            gradient = torch.autograd.grad(result.float().cos().sum(), x) if result.is_floating_point() else ()
            results[device] = [result.detach(), *gradient]
        for got, expected in zip(results[DEVICE], results["cpu"], strict=True):
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.openreg_only
@pytest.mark.parametrize("name", ["rows", "planes", "elements", "a later dimension", "a mask and a slice"])
def test_a_mask_waits_once_and_is_probed_once(name):
    given = tensors(DEVICE)
    for seed in range(3):  # other numbers of elements
        CASES[name](*tensors(DEVICE, seed))
    torch.openreg.reset_launch_stats()
    CASES[name](*given)
    stats = torch.openreg.launch_stats()
    assert stats["host_waits"] == 1 and stats["probes"] == 0


@pytest.mark.parametrize("name", ["rows", "planes", "elements", "a later dimension", "a mask and a slice"])
def test_a_mask_of_the_cpu_waits_for_nothing(name):
    x, *masks = tensors(DEVICE)
    of_the_cpu = [mask.cpu() for mask in masks]
    expected = CASES[name](x, *masks)
    for _ in range(2):
        with no_waits():
            result = CASES[name](x, *of_the_cpu)
        assert torch.equal(result, expected) and result.stride() == expected.stride()


@pytest.mark.openreg_only
def test_a_graph_keeps_the_elements_of_a_mask_of_the_cpu():
    x, mask = torch.arange(4.0, device=DEVICE), torch.tensor([True, False, True, True])
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        chosen = x[mask]
    others = [torch.full((3,), 7).pin_memory() for _ in range(50)]  # would take memory that is free
    x += 10
    graph.replay()
    assert chosen.tolist() == [10, 12, 13] and len(others) == 50


@pytest.mark.parametrize(
    "index",
    [
        lambda x, m: x[m[:3]],
        lambda x, m: x[:, m],
        lambda x, m: x[m, m],
        lambda x, m: x[m.expand(2, 4)],
        lambda x, m: x[0, 0, 0, m],
    ],
)
def test_masks_that_do_not_fit_are_refused_as_on_the_cpu(index):
    errors = []
    for device in ("cpu", DEVICE):
        x, rows, *_ = tensors(device)
        with pytest.raises(IndexError) as caught:
            index(x, rows)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
