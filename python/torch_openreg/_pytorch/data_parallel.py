"""The functions behind ``torch.nn.DataParallel``, which PyTorch implements in C++ in CUDA builds only.

Copies between devices are commands, so the functions do not wait, except for copies to and from pageable host memory.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._utils import _get_available_device_type, _get_device_index

from .._slot import NAME
from ..openreg.arguments import unsigned

_HOST = -1  # the device index that means the host

_Streams = Sequence[torch.Stream | None] | None


def register(comm: ModuleType) -> None:
    """Called with ``torch.nn.parallel.comm``, which calls the functions by their names in ``torch._C``."""
    functions: tuple[Callable[..., Any], ...] = (
        _broadcast,
        _broadcast_coalesced,
        _broadcast_out,
        _gather,
        _gather_out,
        _scatter,
        _scatter_out,
    )
    for function in functions:
        original = getattr(torch._C, function.__name__, None)
        setattr(torch._C, function.__name__, _where_cuda_is_not(original, function))
    nccl_is_available = comm.nccl.is_available

    def is_available(tensors: Any) -> bool:
        # A build without NCCL warns whenever gradients are added.
        return (hasattr(torch._C, "_nccl_all_reduce") or not _any_here(tensors)) and nccl_is_available(tensors)

    comm.nccl.is_available = is_available


def register_threads(module: ModuleType) -> None:
    """Called with ``torch.nn.parallel.parallel_apply``, which supports indices and autocast of CUDA only."""
    module._get_device_index = _get_device_index  # type: ignore[attr-defined]
    original = module.parallel_apply

    @functools.wraps(original)
    def parallel_apply(modules: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(NAME):
            autocast = torch.autocast(NAME, torch.get_autocast_dtype(NAME))
            # Not the modules themselves: autocast copies the attributes of what it decorates.
            modules = [autocast(functools.partial(replica)) for replica in modules]
        return original(modules, *args, **kwargs)

    for name in ("torch.nn.parallel", "torch.nn.parallel.data_parallel", module.__name__):
        if getattr(sys.modules.get(name), "parallel_apply", None) is original:
            sys.modules[name].parallel_apply = parallel_apply  # type: ignore[attr-defined]


def _where_cuda_is_not(original: Callable[..., Any] | None, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def choose(*args: Any) -> Any:
        return (original if original and _get_available_device_type() != NAME else function)(*args)

    return choose


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    for index in devices:
        _check_index(index)
    return [_moved(tensor, index) for index in devices]


def _broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    _check_here(out, "an output")
    return [_copied(each, tensor) for each in out]


def _broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    unsigned("buffer_size", buffer_size, "a number of bytes")
    # Copies are queued one by one: a buffer for many small tensors would add a copy and save no wait.
    first = torch.device(NAME, devices[0])
    for tensor in tensors:
        if tensor.device != first:
            raise RuntimeError(
                f"openreg: a tensor to broadcast is not on devices[0] (got {tensor.device}, expected {first})"
            )
    copies = [
        [tensor.to(torch.device(NAME, index), non_blocking=True, copy=True) for tensor in tensors]
        for index in devices[1:]
    ]
    return [list(tensors), *copies]


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: _Streams = None,
) -> list[torch.Tensor]:
    if not devices:
        raise RuntimeError("openreg: no device to scatter to; name at least one")
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    elif len(chunk_sizes) != len(devices):
        raise RuntimeError(
            f"openreg: wrong number of chunks (got {len(chunk_sizes)}, expected {len(devices)}, one for each device)"
        )
    else:
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    moved = []
    for chunk, index, stream in zip(chunks, devices, streams or [None] * len(devices), strict=False):
        if index != tensor.get_device():  # -1 for a tensor in host memory
            _check_index(index)
        _check_stream(stream, index)
        with stream or contextlib.nullcontext():
            moved.append(_moved(chunk, index))
    return moved


def _scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, streams: _Streams = None
) -> list[torch.Tensor]:
    if not out:
        raise RuntimeError("openreg: no tensor to scatter to; pass at least one output")
    _check_here(out, "an output")
    _check_parts(out, dim, tensor)
    chunks = tensor.split_with_sizes([each.size(dim) for each in out], dim)
    copied = []
    for each, chunk, stream in zip(out, chunks, streams or [None] * len(out), strict=True):
        _check_stream(stream, each.get_device())
        with stream or contextlib.nullcontext():
            copied.append(_copied(each, chunk))
    return copied


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None) -> torch.Tensor:
    _check_gathered(tensors)
    for tensor in tensors[1:]:
        _check_part(tensor, dim, tensors[0])
    index = torch.accelerator.current_device_index() if destination is None else destination
    return torch.cat([_moved(tensor, index) for tensor in tensors], dim)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int = 0) -> torch.Tensor:
    _check_gathered(tensors)
    _check_parts(tensors, dim, out)
    for part, tensor in zip(out.split_with_sizes([each.size(dim) for each in tensors], dim), tensors, strict=True):
        _copied(part, tensor)
    return out


def _moved(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """A copy of `tensor` on that device, or `tensor` itself if it is already there."""
    return tensor.cpu() if index == _HOST else tensor.to(torch.device(NAME, index), non_blocking=True)


def _copied(out: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if out.shape != tensor.shape:
        raise RuntimeError(f"openreg: an output has the wrong shape (got {[*out.shape]}, expected {[*tensor.shape]})")
    return out.copy_(tensor, non_blocking=out.device.type == NAME)


def _any_here(tensors: Sequence[torch.Tensor]) -> bool:
    return any(tensor.device.type == NAME for tensor in tensors)


def _check_here(tensors: Sequence[torch.Tensor], what: str) -> None:
    for tensor in tensors:
        if tensor.device.type != NAME:
            raise RuntimeError(f"openreg: {what} is on another device (got {tensor.device}, expected {NAME})")


def _check_parts(parts: Sequence[torch.Tensor], dim: int, whole: torch.Tensor) -> None:
    """Raises RuntimeError unless `parts`, laid along `dim`, have the shape of `whole`."""
    for part in parts:
        _check_part(part, dim, whole)
    sizes = [part.size(dim) for part in parts]
    if sum(sizes) != whole.size(dim):
        raise RuntimeError(f"openreg: the parts have the wrong size (got {sizes}, expected a sum of {whole.size(dim)})")


def _check_part(part: torch.Tensor, dim: int, like: torch.Tensor) -> None:
    """Raises RuntimeError unless `part` has the shape of `like`, but for the size along `dim`."""
    expected = [*like.shape]
    if part.dim() == like.dim():
        expected[dim] = part.size(dim)
    if [*part.shape] != expected:
        raise RuntimeError(f"openreg: a part has the wrong shape (got {[*part.shape]}, expected {expected})")


def _check_gathered(tensors: Sequence[torch.Tensor]) -> None:
    if not tensors:
        raise RuntimeError("openreg: no tensor to gather; pass at least one")
    _check_here(tensors, "a tensor to gather")


def _check_index(index: int) -> None:
    if index < 0:
        raise RuntimeError(f"openreg: the index of a device is negative (got {index}, expected 0 or more)")


def _check_stream(stream: torch.Stream | None, index: int) -> None:
    if stream is not None and stream.device != torch.device(NAME, index):
        raise RuntimeError(
            f"openreg: a stream is on another device than its part (got {stream.device}, expected {NAME}:{index})"
        )
