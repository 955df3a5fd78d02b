"""Storages: the memory behind tensors, and the operators that change which memory a tensor has.

`resize_`, `set_` and `UntypedStorage.resize_` change the sizes and the memory of existing tensors. PyTorch uses them
for `out=` arguments, for FSDP, for serialization and for deep copies.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import expect_error


@check(level=Level.BOOTS, hook="aten::empty.memory_format; c10::Allocator::allocate")
def storages_have_a_device_and_a_size(device: Device) -> None:
    """A storage is on the tensor's device, has its bytes, and an address that views share.

    An empty tensor has a storage of zero bytes on its device, too: the DataPtr carries the device even if it is null.
    """
    for index in range(device.count):
        x = torch.arange(6.0, device=device.at(index))
        storage = x.untyped_storage()
        assert storage.device == device.at(index) and storage.nbytes() == 24 and len(storage) == 24
        assert storage.data_ptr() == x.data_ptr() != 0
        assert x[2:].data_ptr() == x.data_ptr() + 8 and x[2:].untyped_storage().data_ptr() == storage.data_ptr()
        empty = torch.empty(0, device=device.at(index))
        assert (
            empty.device == device.at(index) == empty.untyped_storage().device and empty.untyped_storage().nbytes() == 0
        )
    a, b = torch.empty(16, device=device.this), torch.empty(16, device=device.this)
    assert a.data_ptr() != b.data_ptr(), "two tensors have the same memory"


@check(level=Level.BOOTS, hook="aten::resize_")
def resize_keeps_the_elements(device: Device) -> None:
    """`resize_` keeps the elements in memory, grows the storage, does not shrink it, and keeps other views valid.

    It works on the storage's elements, whatever the strides were.
    """
    x = torch.arange(6.0, device=device.this)
    view = x[:2]
    x.resize_(2, 2)
    device.cpu_equal(x, torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    assert x.untyped_storage().nbytes() == 24, "the storage shrank"
    x.resize_(6)
    device.cpu_equal(x, torch.arange(6.0))
    x.resize_(100)
    assert x.untyped_storage().nbytes() >= 400 and x.is_contiguous()
    device.cpu_equal(x[:6], torch.arange(6.0))
    view.add_(1)
    device.cpu_equal(x[:2], torch.tensor([1.0, 2.0]))
    x.resize_(0)
    assert x.shape == (0,)


@check(level=Level.BOOTS, hook="aten::resize_")
def resize_to_the_same_size_keeps_the_strides(device: Device) -> None:
    """`resize_` to the size that the tensor has changes nothing, not even the strides.

    PyTorch resizes results before it writes them. If strides are lost, in-place operators on views write elsewhere.
    """
    base = torch.arange(12.0, device=device.this).view(3, 4)
    for view in (base.t(), base[:, 1:3], base[::2]):
        before = (view.size(), view.stride(), view.storage_offset())
        view.resize_(view.shape)
        assert (view.size(), view.stride(), view.storage_offset()) == before, "resize_ changed the strides"
    device.cpu_equal(base.t(), torch.arange(12.0).view(3, 4).t())


@check(level=Level.BOOTS, hook="aten::resize_; out= arguments")
def results_are_resized(device: Device) -> None:
    """`out=` with an empty tensor resizes it, and with strides keeps them; `resize_as_` and memory formats work.

    Structured kernels call `resize_` or `set_` through PyTorch.
    """
    one = torch.ones(3, 4, device=device.this)
    out = torch.empty(0, device=device.this)
    assert torch.add(one, 1, out=out) is out
    device.cpu_equal(out, torch.full((3, 4), 2.0))
    strided = torch.zeros(4, 3, device=device.this).t()
    torch.mul(one, 3, out=strided)
    assert strided.stride() == (1, 3), f"the strides became {strided.stride()}"
    device.cpu_equal(strided, torch.full((3, 4), 3.0))
    for result in (torch.abs(one, out=out.resize_(0)), torch.sum(one, 0, out=torch.empty(0, device=device.this))):
        device.cpu_equal(result, torch.ones(3, 4) if result.dim() == 2 else torch.full((4,), 3.0))
    places = torch.nonzero(one[0] > 0, out=torch.empty(0, dtype=torch.int64, device=device.this))
    device.cpu_equal(places, torch.arange(4).view(4, 1))
    other = torch.empty(0, device=device.this).resize_as_(one)
    assert other.shape == one.shape
    x = torch.empty(0, device=device.this).resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.stride() == (60, 1, 15, 3)


@check(
    level=Level.TRAINS, hook="aten::set_.source_Storage_storage_offset, set_.source_Storage, set_.source_Tensor, set_"
)
def set_gives_a_tensor_another_storage(device: Device) -> None:
    """The forms of `set_` make a tensor share a storage, with sizes, strides and an offset.

    Deep copies and serialization rebuild tensors with it. It must grow the storage if the view would go beyond.
    """
    x = torch.arange(6.0, device=device.this)
    y = torch.empty(0, device=device.this).set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    y.add_(10)
    device.cpu_equal(x, torch.tensor([0.0, 1, 12, 13, 14, 15]))
    z = torch.empty(0, device=device.this).set_(x)  # type: ignore[call-overload]
    assert z.is_set_to(x) and not z.is_set_to(y) and z.shape == (6,)
    z.mul_(0)
    device.cpu_equal(x, torch.zeros(6))
    w = torch.empty(0, device=device.this).set_(x.untyped_storage())
    assert w.shape == (6,) and w.data_ptr() == x.data_ptr()
    w.set_()  # type: ignore[call-overload]
    assert w.shape == (0,) and w.device == device.this
    expect_error(lambda: torch.empty(0, device=device.this).set_(torch.ones(2)), RuntimeError)  # type: ignore[call-overload]


@check(level=Level.TRAINS, hook="aten::_copy_from, set_.source_Storage")
def storages_are_copied(device: Device) -> None:
    """Storages can be copied to the host, back, cloned, filled and read by element.

    `torch.save` uses these functions.
    """
    x = torch.arange(6, dtype=torch.uint8, device=device.this)
    storage = x.untyped_storage()
    assert storage.cpu().tolist() == [0, 1, 2, 3, 4, 5] and storage[3] == 3
    other = storage.clone()
    assert other.device == device.this and other.data_ptr() != storage.data_ptr()
    other.fill_(7)
    assert other.tolist() == [7] * 6 and storage.tolist() == [0, 1, 2, 3, 4, 5]
    storage.copy_(torch.full((6,), 9, dtype=torch.uint8).untyped_storage(), False)
    device.cpu_equal(x, torch.full((6,), 9, dtype=torch.uint8))


@check(level=Level.COMPLETE, hook="c10::Allocator::allocate, raw_deleter; is_simple_data_ptr")
def lazy_clones_separate_at_the_first_write(device: Device) -> None:
    """`torch._lazy_clone` shares memory until one of both is written to.

    PyTorch copies at the first write, by the allocator's clone. Kernels that take a mutable pointer trigger it.
    """
    x = torch.arange(4.0, device=device.this)
    y = torch._lazy_clone(x)
    device.cpu_equal(y, torch.arange(4.0))
    y.add_(1)
    device.cpu_equal(x, torch.arange(4.0))
    device.cpu_equal(y, torch.arange(4.0) + 1)
    z = torch._lazy_clone(x)
    x.zero_()
    device.cpu_equal(z, torch.arange(4.0))
