"""Views: tensors that share a storage, and operators that write through them.

View operators only change sizes, strides and the offset. The fallback to the CPU cannot run them: it would return a
copy, and writes to it would be lost. The backend registers PyTorch's own functions for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check
from backend_conformance.evidence import expect_error

Function = Callable[[torch.Tensor], torch.Tensor]

VIEWS: dict[str, Function] = {
    "view": lambda x: x.view(6, 4),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x.select(1, 2),
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "reshape": lambda x: x.reshape(2, 12),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (5, 2), 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "diagonal": lambda x: x.diagonal(1),
    "expand": lambda x: x[:, :1].expand(4, 3),
    "split": lambda x: x.split(2, dim=1)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "narrow": lambda x: x.narrow(0, 1, 2),
    "movedim": lambda x: x.movedim(0, 1),
    "view_dtype": lambda x: x.view(torch.int32),
    "view_smaller_dtype": lambda x: x.view(torch.int16),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "real_of_complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "imaginary_of_conjugate": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().imag,
}


@check(level=Level.BOOTS, hook="aten::view, as_strided, _reshape_alias, unfold, view_as_complex", cases=tuple(VIEWS))
def view_shares_memory(device: Device, case: str) -> None:
    """A view has the CPU's sizes, strides and offset, shares the storage, and each sees what the other writes.

    A view operator that falls back to the CPU returns a copy, with a warning at most.
    """
    view, here = VIEWS[case], torch.arange(24.0).view(4, 6)
    there = here.to(device.this)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, y_here = view(there), view(here)
    assert y.untyped_storage().data_ptr() == there.untyped_storage().data_ptr(), "the view has memory of its own"
    assert (y.size(), y.stride(), y.storage_offset()) == (y_here.size(), y_here.stride(), y_here.storage_offset())
    assert y.dtype == y_here.dtype and y.is_neg() == y_here.is_neg()
    there.mul_(2)
    here.mul_(2)
    device.cpu_equal(y.resolve_neg(), y_here.resolve_neg())
    if case != "expand":  # elements that share memory cannot be written to
        y.fill_(1)
        y_here.fill_(1)
        device.cpu_equal(there, here)


IN_PLACE: dict[str, Function] = {
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "add_": lambda x: x.add_(1.5),
    "mul_": lambda x: x.mul_(x),
    "sub_broadcast": lambda x: x.sub_(torch.arange(float(x.shape[-1]), device=x.device)),
    "clamp_": lambda x: x.clamp_(2, 9),
    "relu_": lambda x: x.relu_(),
    "exp_": lambda x: x.div_(24).exp_(),
    "addcmul_": lambda x: x.addcmul_(x, x, value=0.5),
    "masked_fill_": lambda x: x.masked_fill_(x > 5, -1),
    "copy_": lambda x: x.copy_(x.flip(0)),
    "cumsum_": lambda x: x.cumsum_(0),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 7),
    "tril_": lambda x: x.tril_(),
    "lerp_": lambda x: x.lerp_(x * 2, 0.25),
    "where_out": lambda x: torch.where(x > 4, x, -x, out=x),
    "add_out": lambda x: torch.add(x, 2, out=x),
    "matmul_out": lambda x: torch.mm(x.clone(), torch.eye(x.shape[1], device=x.device) * 2, out=x),
}
WINDOWS: dict[str, Function] = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[1:, ::2],
    "columns": lambda x: x[:, 2:4],
    "offset": lambda x: x.view(-1)[5:21].view(4, 4),
}


@check(level=Level.BOOTS, hook="operators with results of any strides", cases=tuple(IN_PLACE))
def in_place_operator_writes_through_views(device: Device, case: str) -> None:
    """An in-place operator on a view changes exactly the elements of the view.

    The operator's result has the strides of the view. A kernel or a fallback that assumes contiguous memory, or a
    `resize_` that resets the strides although the size is unchanged, writes elsewhere, without an error.
    """
    for name, window in WINDOWS.items():
        here = torch.arange(24.0).view(4, 6)
        there = here.to(device.this)
        target, target_here = window(there), window(here)
        assert IN_PLACE[case](target) is target
        IN_PLACE[case](target_here)
        assert target.stride() == target_here.stride(), f"{name}: the strides became {target.stride()}"
        try:
            device.cpu_equal(there, here)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@check(level=Level.BOOTS, hook="aten::view_as_real, view_as_complex")
def complex_and_real_views_share_memory(device: Device) -> None:
    """`view_as_real` and `view_as_complex` see each other's writes.

    Both are views of the same storage with another dtype.
    """
    z = torch.zeros(2, dtype=torch.complex64, device=device.this)
    torch.view_as_real(z)[0, 1] = 3
    device.cpu_equal(z, torch.tensor([3j, 0]))
    r = torch.zeros(2, 2, device=device.this)
    torch.view_as_complex(r)[1:].fill_(1 + 2j)
    device.cpu_equal(r, torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    z.imag.fill_(5)
    device.cpu_equal(z, torch.tensor([5j, 5j]))


@check(level=Level.TRAINS, hook="versions of views")
def views_take_part_in_autograd(device: Device) -> None:
    """In-place changes of views reach the gradient, and are noticed if a saved tensor was changed.

    PyTorch tracks views by their base and a version. An operator registered without its view semantics loses both.
    """

    def gradient(where: torch.device | str) -> torch.Tensor:
        x = torch.arange(6.0, device=where).view(2, 3).requires_grad_()
        y = x * 1
        y[0].mul_(3)
        y.t()[1].copy_(y.t()[0] * 2)
        (result,) = torch.autograd.grad(y.square().sum(), x)
        return result

    device.cpu_equal(gradient(device.this), gradient("cpu"))
    x = torch.ones(3, device=device.this, requires_grad=True)
    y = x.exp()
    version = y._version
    y[1:].add_(1)
    assert y._version > version, "a write through a view does not count as a change of its base"
    expect_error(lambda: y.sum().backward(), RuntimeError, "modified by an inplace operation")


@check(level=Level.BOOTS, hook="operators with overlapping results")
def writes_to_overlapping_memory_are_refused(device: Device) -> None:
    """In-place operators on expanded tensors, and partial overlaps of input and output, raise RuntimeError.

    PyTorch's iterators check this. A kernel without it gives results that depend on the order of its threads.
    """
    x = torch.zeros(1, 3, device=device.this)
    expect_error(lambda: x.expand(3, 3).add_(1), RuntimeError, "single memory location")
    y = torch.arange(6.0, device=device.this)
    expect_error(lambda: torch.add(y[:-1], 1, out=y[1:]), RuntimeError, "memory")
    device.cpu_equal(y, torch.arange(6.0))


@check(level=Level.BOOTS, hook="aten::empty.memory_format, empty_strided")
def memory_formats_are_kept(device: Device) -> None:
    """channels_last tensors are made, kept by pointwise operators, and converted, with the CPU's strides.

    `empty` receives the memory format; `empty_strided` the strides.
    """
    shape = (2, 3, 4, 5)

    def strides(where: torch.device | str) -> list[tuple[int, ...]]:
        x = torch.empty(shape, device=where, memory_format=torch.channels_last)
        y = torch.ones(shape, device=where).to(memory_format=torch.channels_last)
        z = torch.ones((2, 3, 2, 4, 5), device=where).contiguous(memory_format=torch.channels_last_3d)
        w = torch.empty_strided((2, 3), (1, 7), device=where).fill_(0)
        made = [x, y, y + 1, y.clone(), torch.empty_like(y), y * y.contiguous(), y.contiguous(), z, z.relu(), w, w + w]
        made += [y.float().double(), torch.zeros_like(w), torch.rand_like(y), y.permute(1, 0, 2, 3) * 2]
        return [each.stride() for each in made]

    assert strides(device.this) == strides("cpu")
