"""Copies: between the CPU and the device, between devices, and within one, for all dtypes and layouts.

`copy_` of tensors of the device calls the backend's `_copy_from(source, destination, non_blocking)` for each
combination: conversions of dtype, strides, broadcasting, other devices, conjugate and negative bits. The source comes
as it is, unexpanded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check, missing
from backend_conformance.evidence import Trials, expect_error, value
from backend_conformance.verdicts import first_line

DTYPES = (
    "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128".split()
)  # those that programs use
RARE_DTYPES = "complex32 float8_e4m3fn float8_e5m2 uint16 uint32 uint64".split()


def samples(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(torch.tensor([0.0, 1.0, -2.0, 3.5, 0.25]), torch.tensor([0.0, -1.0, 2.0, 0.5, 8.0])).to(
            dtype
        )
    if dtype.is_floating_point:
        return torch.tensor([0.0, 1.0, -2.0, 3.5, 0.25]).to(dtype)
    if dtype == torch.bool:
        return torch.tensor([False, True, True, False, True])
    return torch.tensor([0, 1, 2, 3, 100]).to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@check(level=Level.BOOTS, hook="aten::_copy_from", cases=DTYPES)
def dtype_goes_and_comes(device: Device, case: str) -> None:
    """Tensors of each dtype come back from the device bit by bit.

    A copy without conversion is a copy of bytes. A device that lacks a dtype refuses it with an error; storing
    another dtype is wrong. Devices without float64 declare it.
    """
    x = samples(getattr(torch, case))
    host = x.clone()
    there = host.to(device.name)
    host.zero_()  # the copy has memory of its own
    assert there.device == device.this and there.dtype == x.dtype, f"the copy has {there.dtype} on {there.device}"
    back = there.cpu()
    assert back.dtype == x.dtype and torch.equal(bits(back), bits(x)), f"{x.tolist()} came back as {back.tolist()}"


@check(level=Level.COMPLETE, hook="aten::_copy_from", cases=RARE_DTYPES)
def rare_dtype_goes_and_comes(device: Device, case: str) -> None:
    """Tensors of the dtypes that are for storage mainly come back from the device bit by bit.

    PyTorch has few operators for them. Copies, views and `cat` are expected.
    """
    x = torch.arange(8, dtype=torch.uint8).view(getattr(torch, case))
    back = x.to(device.this).clone().cpu()
    assert back.dtype == x.dtype and torch.equal(bits(back), bits(x)), "the bytes changed"


@check(level=Level.BOOTS, hook="aten::_copy_from", cases=DTYPES)
def copies_convert_from(device: Device, case: str) -> None:
    """Copies convert the dtype as the CPU does: on the device, to it, and from it.

    `_copy_from` receives tensors of different dtypes. Rounding to bfloat16 and truncation to integers must agree.
    """
    source = samples(getattr(torch, case))[[0, 1, 3, 4]]  # a negative number has no value as an unsigned one
    refused = []
    for name in DTYPES:
        dtype = getattr(torch, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex numbers lose their imaginary part
            expected = source.to(dtype)
            try:
                there = source.to(device.this)
                device.cpu_equal(there.to(dtype), expected, rtol=0, atol=0)
                device.cpu_equal(
                    torch.empty(4, dtype=dtype, device=device.this).copy_(source), expected, rtol=0, atol=0
                )
                assert torch.equal(torch.empty(4, dtype=dtype).copy_(there), expected), f"{case} to {name} on the CPU"
            except (RuntimeError, TypeError) as error:
                refused.append(f"{name}: {first_line(error)}")
    if refused:
        missing(f"{case} is not converted to " + "; ".join(refused))


def layouts() -> dict[str, torch.Tensor]:
    base = torch.arange(120.0).view(2, 3, 4, 5)
    return {
        "contiguous": base.clone(),
        "transposed": base.transpose(0, 3),
        "permuted": base.permute(2, 0, 3, 1),
        "sliced": base[:, 1:, ::2, ::3],
        "offset": base.view(-1)[7:].view(113)[:112].view(7, 16),
        "broadcast": base[:, :1].expand(2, 3, 4, 5),
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "overlapping": base.view(-1).as_strided((4, 4), (2, 1)),
        "scalar": base[1, 2, 3, 4],
        "empty": base[:0],
        "single_column": base[..., 2:3],
    }


@check(level=Level.BOOTS, hook="aten::_copy_from", cases=tuple(layouts()))
def layout_goes_and_comes(device: Device, case: str) -> None:
    """Values and strides of each layout agree with those of the same copy on the CPU.

    `.to(device)` keeps the strides of dense tensors. A copy that moves bytes without regard to strides fails here.
    """
    x = layouts()[case]
    there, here = x.to(device.this), x.to("cpu", copy=True)
    assert there.stride() == here.stride(), f"the strides are {there.stride()}, on the CPU {here.stride()}"
    device.cpu_equal(there, x)
    back, copied = there.cpu(), here.to("cpu", copy=True)
    assert back.stride() == copied.stride() and torch.equal(back, x), "the copy back differs"


@check(level=Level.BOOTS, hook="aten::_copy_from", cases=tuple(layouts()))
def layout_is_copied_on_the_device(device: Device, case: str) -> None:
    """`copy_`, `clone`, `contiguous` and assignments read and write each layout on the device.

    Source and destination are views of tensors on the device here, so that the strides, not only the values, are there.
    """
    name, pattern = device.this, layouts()[case]
    storage = pattern.untyped_storage()
    flat = torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,), (1,))
    source = flat.to(name).as_strided(pattern.size(), pattern.stride(), pattern.storage_offset())
    assert source.stride() == pattern.stride()
    device.cpu_equal(source, pattern)
    device.cpu_equal(source.clone(), pattern)
    assert source.clone().stride() == pattern.clone().stride(), "clone has other strides than on the CPU"
    device.cpu_equal(source.contiguous(), pattern)
    device.cpu_equal(torch.zeros(pattern.shape, device=name).copy_(source), pattern)
    device.cpu_equal(torch.zeros(pattern.shape, device=name, dtype=torch.int32).copy_(source), pattern.int())
    assert torch.equal(torch.zeros(pattern.shape).copy_(source), pattern), "copy_ to the CPU"
    if case in ("broadcast", "overlapping"):
        return  # no destinations
    target, target_here = torch.zeros_like(flat, device=name), torch.zeros_like(flat)
    view = target.as_strided(pattern.size(), pattern.stride(), pattern.storage_offset())
    view_here = target_here.as_strided(pattern.size(), pattern.stride(), pattern.storage_offset())
    for new in (torch.full(pattern.shape, 3.0, device=name), pattern.to(name) * 2, pattern * 3, pattern.double() * 4):
        view.copy_(new)
        view_here.copy_(new)
        device.cpu_equal(target, target_here)


@check(level=Level.BOOTS, hook="aten::_copy_from")
def copies_broadcast(device: Device) -> None:
    """`copy_` broadcasts a smaller source, from the CPU and from the device, with a conversion as well.

    `_copy_from` receives the source unexpanded: with fewer elements than the destination.
    """
    row, column = torch.arange(4.0), torch.arange(3.0).view(3, 1).double()
    for source in (row, column, torch.tensor(5)):
        expected = torch.zeros(3, 4).copy_(source)
        device.cpu_equal(torch.zeros(3, 4, device=device.this).copy_(source), expected)
        device.cpu_equal(
            torch.zeros(3, 4, device=device.this).copy_(source.to(torch.float32).to(device.this)), expected
        )
        assert torch.equal(torch.zeros(3, 4).copy_(source.float().to(device.this)), expected), "to the CPU"
    x, y = torch.zeros(4, 4, device=device.this), torch.zeros(4, 4)
    x.t()[1:, ::2] = torch.arange(2.0)
    y.t()[1:, ::2] = torch.arange(2.0)
    device.cpu_equal(x, y)
    expect_error(lambda: torch.zeros(4, device=device.this).copy_(torch.zeros(3, 4)), RuntimeError)


CONJUGATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conjugate": lambda x: x.conj(),
    "conjugate_view": lambda x: x.conj()[1:],
    "imaginary_of_conjugate": lambda x: x.conj().imag,
    "negative": lambda x: torch._neg_view(x.real),
    "adjoint": lambda x: x.view(1, -1).mH,
    "twice": lambda x: x.conj().conj(),
}


@check(level=Level.BOOTS, hook="aten::_copy_from at the keys Conjugate and Negative", cases=tuple(CONJUGATE))
def lazy_bits_are_resolved_by_copies(device: Device, case: str) -> None:
    """Copies of conjugate and negative views have the values that the view stands for.

    `x.conj()` only sets a bit. If `_copy_from` has no fallthrough at these keys, PyTorch's fallback resolves the bit
    by a copy, which calls the fallback: the stack overflows. A kernel that ignores the bits gives the wrong sign.
    """
    view = CONJUGATE[case]
    x = torch.tensor([1 + 2j, 3 - 1j, -2 + 0.5j])
    expected = view(x).clone().resolve_conj().resolve_neg()
    there = view(x.to(device.this))
    device.cpu_equal(there.resolve_conj().resolve_neg(), expected)
    assert torch.equal(there.cpu().resolve_conj().resolve_neg(), expected), "the copy to the CPU differs"
    device.cpu_equal(view(x).to(device.this).resolve_conj().resolve_neg(), expected)
    device.cpu_equal(torch.zeros_like(expected, device=device.this).copy_(there), expected)
    target = view(torch.zeros(3, dtype=x.dtype, device=device.this))
    target.copy_(expected.to(device.this))
    device.cpu_equal(target.resolve_conj().resolve_neg(), expected)


@check(level=Level.BOOTS, hook="aten::_copy_from")
def copy_of_a_tensor_to_itself_changes_nothing(device: Device) -> None:
    """`x.copy_(x)`, copies between disjoint parts, and `x.to(device)` of a tensor there give what the CPU gives.

    `to` returns the same tensor if nothing changes, and a new one with `copy=True`.
    """
    x = torch.arange(10.0, device=device.this)
    x.copy_(x)
    device.cpu_equal(x, torch.arange(10.0))
    assert x.to(device.this) is x
    other = x.to(device.this, copy=True)
    assert other.data_ptr() != x.data_ptr()
    x[:5].copy_(x[5:])
    device.cpu_equal(x, torch.cat([torch.arange(5.0, 10.0), torch.arange(5.0, 10.0)]))
    device.cpu_equal(other, torch.arange(10.0))


@check(level=Level.BOOTS, hook="aten::_copy_from between devices", needs=("several_devices",))
def tensors_go_between_devices(device: Device) -> None:
    """Copies to another device of any layout and dtype have the values, and leave the current device alone.

    Both tensors' devices may differ from the current one.
    """
    for name, x in layouts().items():
        there = x.to(device.this).to(device.other)
        assert there.device == device.other, f"{name}: the copy is on {there.device}"
        device.cpu_equal(there, x)
        device.cpu_equal(torch.zeros(x.shape, device=device.this).copy_(there), x)
        device.cpu_equal(
            torch.zeros(x.shape, device=device.other, dtype=torch.int64).copy_(x.to(device.this)), x.long()
        )
    view = torch.zeros(4, 4, device=device.other)
    view.t()[1:, ::2] = torch.ones(3, 2, device=device.this)
    assert value(view.sum()) == 6 and value(view.t()[1:, ::2]) == 1
    assert torch.accelerator.current_device_index() == 0


@check(level=Level.ASYNCHRONOUS, hook="_copy_from between devices", needs=("streams", "several_devices"))
def copies_between_devices_are_ordered(device: Device) -> None:
    """A copy to another device is ordered on both devices' current streams.

    `_copy_from` follows the source's writes, and precedes the destination's reads and the source's next writes.
    """
    x, y = torch.zeros(1 << 14, device=device.this), torch.zeros(1 << 14, device=device.other)
    y.copy_(x)
    torch.accelerator.synchronize(1)
    trials = Trials(device, torch.accelerator.current_stream())
    for number in trials:
        x.fill_(number)
        trials.ahead()
        y.copy_(x)
        x.fill_(-1)
        z = y * 2
        assert value(z) == 2 * number, f"the other device read {value(z) / 2}, not {number}"


def overwrite_source(device: Device, non_blocking: bool) -> None:
    """Copies from pageable memory behind other work, and overwrites the source when the call has returned."""
    y = torch.zeros(1 << 16, device=device.this)
    trials = Trials(device, torch.accelerator.current_stream())
    for number in trials:
        x = torch.full((1 << 16,), float(number))
        trials.ahead()
        y.copy_(x, non_blocking=non_blocking)
        x.fill_(-1)
        assert value(y) == number, "the device read the source after the call had returned"


@check(level=Level.ASYNCHRONOUS, hook="aten::_copy_from with non_blocking", needs=("streams",))
def source_on_the_host_may_change_after_a_blocking_copy(device: Device) -> None:
    """After a copy from the host without `non_blocking` the program may overwrite the source.

    If the copy is queued behind other work, the backend has to wait, or to keep the bytes.
    """
    overwrite_source(device, non_blocking=False)


@check(level=Level.ASYNCHRONOUS, hook="aten::_copy_from with non_blocking", needs=("streams",))
def source_in_pageable_memory_may_be_freed(device: Device) -> None:
    """A `non_blocking` copy from pageable memory has read its source when the call returns.

    CUDA stages such a copy, and programs rely on it: they free or overwrite the source at once.
    """
    overwrite_source(device, non_blocking=True)


@check(
    level=Level.ASYNCHRONOUS, hook="aten::_copy_from with non_blocking; isPinnedPtr", needs=("streams", "pinned_memory")
)
def copy_from_pinned_memory_returns_early(device: Device) -> None:
    """A `non_blocking` copy from pinned memory returns before the stream reaches it, and has the right values.

    The backend must not wait: loaders overlap these copies with computation.
    """
    y = torch.zeros(1 << 16, device=device.this)
    x = torch.empty(1 << 16).pin_memory()
    trials = Trials(device, torch.accelerator.current_stream())
    for number in trials:
        x.fill_(number)
        y.copy_(x, non_blocking=True)
        trials.ahead()
        assert value(y) == number
    assert torch.accelerator.current_stream().query()


@check(level=Level.ASYNCHRONOUS, hook="aten::_copy_from with non_blocking", needs=("streams", "pinned_memory"))
def copy_to_pinned_memory_is_complete_after_a_wait(device: Device) -> None:
    """A `non_blocking` copy to pinned memory is complete after an event or the stream is synchronised.

    The host must not read the result before. Copies to pageable memory wait by themselves, or the values are lost.
    """
    x, result = torch.zeros(1 << 16, device=device.this), torch.zeros(1 << 16).pin_memory()
    trials = Trials(device, torch.accelerator.current_stream())
    for number in trials:
        x.fill_(number)
        result.copy_(x, non_blocking=True)
        x.fill_(-1)
        trials.ahead()
        torch.accelerator.current_stream().synchronize()
        assert value(result) == number, "the copy was not complete after the stream was synchronised"


@check(level=Level.ASYNCHRONOUS, hook="HostAllocator::record_event", needs=("streams", "pinned_memory"))
def pinned_memory_waits_for_its_copies(device: Device) -> None:
    """Pinned memory that is freed while a copy still reads it is not given out again before.

    PyTorch does not record the copy: `_copy_from` calls record_event of the host allocator.
    """
    y = torch.zeros(1 << 16, device=device.this)
    trials = Trials(device, torch.accelerator.current_stream())
    for number in trials:
        x = torch.empty(1 << 16, pin_memory=True).fill_(number)
        y.copy_(x, non_blocking=True)
        trials.ahead()
        del x
        for _ in range(4):
            torch.empty(1 << 16, pin_memory=True).fill_(-5)
        assert value(y) == number, "pinned memory was used again while a copy still read it"
