"""What has no kernel of ours runs the CPU's, in tier 2 or 3: what holds for both, and custom operators."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


def test_functional_operators_return_device_tensors():
    a = torch.randn(4, 4)
    q, r = torch.linalg.qr(a.to(DEVICE))
    assert q.device == torch.device(f"{DEVICE}:0")
    assert_close((q @ r).cpu(), a)
    assert_close(torch.cumprod(a.to(DEVICE), 0).cpu(), torch.cumprod(a, 0))


def test_results_keep_the_strides_of_the_cpu():
    a = torch.randn(5, 5)
    got, expected = torch.linalg.qr(a.to(DEVICE)), torch.linalg.qr(a)
    assert [t.stride() for t in got] == [t.stride() for t in expected]


def test_outputs_that_the_kernel_resizes():
    a = torch.tensor([[0, 1], [2, 0]])
    out = torch.empty(0, dtype=torch.long, device=DEVICE)
    torch.nonzero(a.to(DEVICE), out=out)
    assert torch.equal(out.cpu(), torch.nonzero(a))
    assert torch.equal(torch.arange(5, device=DEVICE).cpu(), torch.arange(5))
    b = torch.randn(3)
    out = torch.empty(0, device=DEVICE)
    torch.abs(b.to(DEVICE), out=out)
    assert torch.equal(out.cpu(), b.abs())


def test_results_depending_on_data():
    a = torch.tensor([3, 1, 3, 2])
    x = a.to(DEVICE)
    assert torch.equal(torch.unique(x).cpu(), torch.unique(a))
    assert torch.equal(torch.bincount(x).cpu(), torch.bincount(a))
    assert torch.equal(torch.masked_select(x, x > 1).cpu(), a[a > 1])


def test_inplace_and_mutable_operators():
    a = torch.randn(4)
    x = a.to(DEVICE)
    mask = torch.tensor([True, False, True, False])
    assert x.masked_fill_(mask.to(DEVICE), 5.0) is x
    assert_close(x.cpu(), a.masked_fill(mask, 5.0))
    x.put_(torch.tensor([0, 1], device=DEVICE), torch.tensor([7.0, 8.0], device=DEVICE))
    assert x.cpu()[:2].tolist() == [7.0, 8.0]


def test_tensor_lists_are_changed_in_place():
    a = [torch.randn(2), torch.randn(3)]
    x = [t.to(DEVICE) for t in a]
    torch._foreach_mul_(x, 2.0)
    for got, expected in zip(x, a, strict=True):
        assert_close(got.cpu(), expected * 2)


def test_undefined_tensors_and_optional_lists():
    a = torch.randn(2, 3, 4)
    got = torch.native_layer_norm(a.to(DEVICE), [4], None, None, 1e-5)
    for g, e in zip(got, torch.native_layer_norm(a, [4], None, None, 1e-5), strict=True):
        assert_close(g.cpu(), e)
    x = a.to(DEVICE)
    index = torch.tensor([1, 0])
    assert_close(x[:, :, index].cpu(), a[:, :, index])
    torch.ops.aten.index_put_(x, [None, torch.tensor([0], device=DEVICE)], torch.zeros(1, device=DEVICE))
    assert x.cpu()[:, 0].abs().sum().item() == 0


def test_lu_solve_may_leave_a_conjugated_output():
    a = torch.randn(3, 3, dtype=torch.complex64)
    b = torch.randn(2, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)
    expected = torch.linalg.lu_solve(lu, pivots, b, left=False)
    got = torch.linalg.lu_solve(lu.to(DEVICE), pivots.to(DEVICE), b.to(DEVICE), left=False)
    assert_close(got.cpu(), expected)


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
def test_random_operators_follow_the_devices_seed():
    torch.manual_seed(3)
    cpu_state = torch.get_rng_state()
    torch.openreg.manual_seed(7)
    first = torch.randn(100, device=DEVICE)
    second = torch.randn(100, device=DEVICE)
    torch.openreg.manual_seed(7)
    assert torch.equal(torch.randn(100, device=DEVICE).cpu(), first.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.get_rng_state(), cpu_state)
    torch.openreg.manual_seed(7 + (1 << 40))
    assert not torch.equal(torch.randn(100, device=DEVICE).cpu(), first.cpu())


def test_random_operators_take_a_generator():
    generator = torch.Generator(DEVICE).manual_seed(5)
    first = torch.empty(50, device=DEVICE).uniform_(generator=generator)
    generator.manual_seed(5)
    assert torch.equal(torch.rand(50, device=DEVICE, generator=generator).cpu(), first.cpu())
    with pytest.raises(RuntimeError, match=DEVICE):
        torch.rand(5, device=DEVICE, generator=torch.Generator("cpu"))


@pytest.mark.openreg_only
def test_dropout_follows_the_devices_seed():
    x = torch.ones(1000, device=DEVICE)
    torch.openreg.manual_seed(1)
    first = torch.dropout(x, 0.5, True)
    torch.openreg.manual_seed(1)
    assert torch.equal(torch.dropout(x, 0.5, True).cpu(), first.cpu())
    kept = (first != 0).sum().item()
    assert 350 < kept < 650
    assert set(first.cpu().unique().tolist()) == {0.0, 2.0}


def test_convolution_forward_and_backward():
    conv = torch.nn.Conv2d(3, 4, 3, padding=1)
    a = torch.randn(2, 3, 8, 8, requires_grad=True)
    conv(a).square().sum().backward()
    expected = [a.grad, conv.weight.grad, conv.bias.grad]
    expected = [t.clone() for t in expected]
    conv.zero_grad()
    x = a.detach().to(DEVICE).requires_grad_()
    device_conv = conv.to(DEVICE)
    device_conv(x).square().sum().backward()
    for got, e in zip([x.grad, device_conv.weight.grad, device_conv.bias.grad], expected, strict=True):
        assert_close(got.cpu(), e, rtol=1e-4, atol=1e-4)


@pytest.mark.openreg_only
def test_custom_operator_with_a_python_cpu_kernel():
    library = torch.library.Library("openreg_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    seen = []

    def twice(x):
        seen.append(x.device.type)
        return x * 2

    library.impl("twice", twice, "CPU")
    try:
        x = torch.randn(4)
        # Queued work before it: the kernel has to see its result.
        y = torch.ops.openreg_test.twice(x.to(DEVICE) + 1)
        assert seen == ["cpu"]
        assert y.device == torch.device(f"{DEVICE}:0")
        assert_close(y.cpu(), (x + 1) * 2)
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_custom_operator_with_tensors_in_dictionaries_and_nested_lists():
    library = torch.library.Library("openreg_test_nested", "FRAGMENT")
    library.define("total(Tensor x, Dict(str, Tensor) named, Tensor[][] lists) -> Tensor")

    def total(x, named, lists):
        return x + sum(named.values()) + sum(t for inner in lists for t in inner)

    library.impl("total", total, "CPU")
    try:
        one = torch.ones(2, device=DEVICE)
        got = torch.ops.openreg_test_nested.total(one, {"a": one * 2, "b": one * 3}, [[one * 4], [], [one, one]])
        assert got.device == torch.device(f"{DEVICE}:0")
        assert got.tolist() == [12.0, 12.0]
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_autocast_of_the_cpu_does_not_reach_into_a_kernel():
    a = torch.randn(8, 8)
    library = torch.library.Library("openreg_test_autocast", "FRAGMENT")
    library.define("product(Tensor x) -> Tensor")
    library.impl("product", lambda x: x @ x, "CPU")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = torch.ops.openreg_test_autocast.product(a.to(DEVICE))
        assert got.dtype == torch.float32
        assert_close(got.cpu(), a @ a)
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_memory_that_a_kernel_keeps_stays_alive():
    library = torch.library.Library("openreg_test_keep", "FRAGMENT")
    library.define("keep(Tensor x) -> ()")
    kept = []
    library.impl("keep", kept.append, "CPU")
    try:
        torch.ops.openreg_test_keep.keep(torch.full((1000,), 3.0, device=DEVICE))
        torch.accelerator.empty_cache()
        torch.zeros(1000, device=DEVICE)
        torch.accelerator.synchronize()
        assert kept[0].sum().item() == 3000.0
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_a_kernel_may_give_its_argument_another_storage():
    library = torch.library.Library("openreg_test_set", "FRAGMENT")
    library.define("become(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.impl("become", lambda x, y: x.set_(y * 2), "CPU")
    try:
        x = torch.zeros(2, device=DEVICE)
        assert torch.ops.openreg_test_set.become(x, torch.arange(6.0, device=DEVICE)) is x
        assert x.cpu().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        assert x.untyped_storage().nbytes() == 24
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_a_kernel_may_resize_and_conjugate_its_output():
    library = torch.library.Library("openreg_test_conj", "FRAGMENT")
    library.define("conjugate(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")

    def conjugate(x, out):
        out.resize_(x.shape).copy_(x)
        torch._C._set_conj(out, True)
        return out

    library.impl("conjugate", conjugate, "CPU")
    try:
        a = torch.randn(5, dtype=torch.complex64)
        out = torch.empty(0, dtype=torch.complex64, device=DEVICE)
        torch.ops.openreg_test_conj.conjugate(a.to(DEVICE), out=out)
        assert not out.is_conj()
        assert torch.equal(out.cpu(), a.conj().resolve_conj())
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_an_argument_on_the_cpu_is_returned_as_itself():
    library = torch.library.Library("openreg_test_count", "FRAGMENT")
    library.define("count(Tensor x, Tensor(a!) counter) -> Tensor(a!)")
    library.impl("count", lambda x, counter: counter.add_(x.sum()), "CPU")
    try:
        counter = torch.zeros(3)
        assert torch.ops.openreg_test_count.count(torch.ones(2, device=DEVICE), counter) is counter
        assert counter.tolist() == [2.0] * 3
    finally:
        library._destroy()


@pytest.mark.openreg_only
def test_counts_by_tier():
    torch.openreg.reset_launch_stats()
    x = torch.ones(4, device=DEVICE)
    x + x
    torch.unique(x)
    stats = torch.openreg.launch_stats()
    assert stats["typed"] >= 2
    assert stats["synchronous"] == 1
    assert stats["host_waits"] >= 1
