"""What has no kernel of ours runs the CPU's, in tier 2 or 3: what holds for both, and custom operators."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


@pytest.mark.openreg_only
def test_operator_without_a_cpu_kernel_is_named():
    image, grid = torch.ones(1, 1, 3, 3, device=DEVICE), torch.zeros(1, 3, 3, 2, device=DEVICE)
    with pytest.raises(NotImplementedError, match="aten::cudnn_grid_sampler has no kernel for openreg"):
        torch.cudnn_grid_sampler(image, grid)


def test_results_of_layouts_that_no_device_has_are_refused():
    x = torch.randn(3, 3, device=DEVICE)
    with pytest.raises(NotImplementedError, match=r"Mkldnn.*call it on the CPU"):
        x.to_mkldnn()


@pytest.mark.openreg_only
def test_custom_operator_with_tensors_in_dictionaries_and_nested_lists(library):
    library.define("total(Tensor x, Dict(str, Tensor) named, Tensor[][] lists) -> Tensor")

    def total(x, named, lists):
        return x + sum(named.values()) + sum(t for inner in lists for t in inner)

    library.impl("total", total, "CPU")
    one = torch.ones(2, device=DEVICE)
    got = getattr(torch.ops, library.ns).total(one, {"a": one * 2, "b": one * 3}, [[one * 4], [], [one, one]])
    assert got.device == torch.device(f"{DEVICE}:0")
    assert got.tolist() == [12.0, 12.0]


@pytest.mark.openreg_only
def test_autocast_of_the_cpu_does_not_reach_into_a_kernel(library):
    a = torch.randn(8, 8)
    library.define("product(Tensor x) -> Tensor")
    library.impl("product", lambda x: x @ x, "CPU")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = getattr(torch.ops, library.ns).product(a.to(DEVICE))
    assert got.dtype == torch.float32
    assert_close(got.cpu(), a @ a)


@pytest.mark.openreg_only
def test_memory_that_a_kernel_keeps_stays_alive(library):
    library.define("keep(Tensor x) -> ()")
    kept = []
    library.impl("keep", kept.append, "CPU")
    getattr(torch.ops, library.ns).keep(torch.full((1000,), 3.0, device=DEVICE))
    torch.accelerator.empty_cache()
    torch.zeros(1000, device=DEVICE)
    torch.accelerator.synchronize()
    assert kept[0].sum().item() == 3000.0


@pytest.mark.openreg_only
def test_a_kernel_may_give_its_argument_another_storage(library):
    library.define("become(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.impl("become", lambda x, y: x.set_(y * 2), "CPU")
    x = torch.zeros(2, device=DEVICE)
    assert getattr(torch.ops, library.ns).become(x, torch.arange(6.0, device=DEVICE)) is x
    assert x.cpu().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert x.untyped_storage().nbytes() == 24


@pytest.mark.openreg_only
def test_a_kernel_may_resize_and_conjugate_its_output(library):
    library.define("conjugate(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")

    def conjugate(x, out):
        out.resize_(x.shape).copy_(x)
        torch._C._set_conj(out, True)
        return out

    library.impl("conjugate", conjugate, "CPU")
    a = torch.randn(5, dtype=torch.complex64)
    out = torch.empty(0, dtype=torch.complex64, device=DEVICE)
    getattr(torch.ops, library.ns).conjugate(a.to(DEVICE), out=out)
    assert not out.is_conj()
    assert torch.equal(out.cpu(), a.conj().resolve_conj())


@pytest.mark.openreg_only
def test_an_argument_on_the_cpu_is_returned_as_itself(library):
    library.define("count(Tensor x, Tensor(a!) counter) -> Tensor(a!)")
    library.impl("count", lambda x, counter: counter.add_(x.sum()), "CPU")
    counter = torch.zeros(3)
    assert getattr(torch.ops, library.ns).count(torch.ones(2, device=DEVICE), counter) is counter
    assert counter.tolist() == [2.0] * 3
