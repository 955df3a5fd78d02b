"""What a call that has failed leaves behind, and whether two results are the same."""

from __future__ import annotations

import gc
import time
import traceback
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from outcome import device_module
from samples import tensors

PATIENCE = 5.0  # seconds, in which other threads and processes release what they hold
NEVER = 2**62  # the number of an allocation or a command that there is not


def parts_of(value: Any) -> list[torch.Tensor]:
    """The strided tensors of which the tensors in a nested value consist."""
    found = []
    for tensor in tensors(value):
        if tensor.is_nested:
            found += parts_of(list(tensor.detach().unbind()))
        elif tensor.layout is torch.sparse_coo:
            found += [tensor._indices(), tensor._values()]
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            found += [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            found += [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        else:
            found.append(tensor)
    return found


def bits_of(value: Any) -> list[Any]:
    """All bytes of the elements of a nested value, and what in it is no tensor."""
    others = [leaf for leaf in tree_leaves(value) if not isinstance(leaf, torch.Tensor)]
    parts = [
        part.detach().resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format)
        for part in parts_of(value)
    ]
    return [*map(str, others), *(part.flatten().view(torch.uint8) for part in parts)]


def same_bits(a: list[Any], b: list[Any]) -> bool:
    def same(one: Any, other: Any) -> bool:
        return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)

    return len(a) == len(b) and all(map(same, a, b))


def forget(error: BaseException | None) -> None:
    """Lets go of what the frames of an error hold."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def memory_in_use() -> int:
    device_module().ipc_collect()  # what other processes have released
    return int(device_module().memory_allocated())


def memory_beyond(start: int) -> int:
    """What is in use now and was not then. Negative if that counted what autograd's thread was about to release."""
    deadline = time.monotonic() + PATIENCE
    while (left := memory_in_use() - start) and time.monotonic() < deadline:
        gc.collect()
        if memory_in_use() < start:
            break
    return left


def settled_memory() -> int:
    """What is in use when other threads and processes have released what they were about to release."""
    torch.accelerator.synchronize()
    gc.collect()
    in_use, since = memory_in_use(), time.monotonic()
    while time.monotonic() - since < 0.2:
        time.sleep(0.01)
        if memory_in_use() != in_use:
            in_use, since = memory_in_use(), time.monotonic()
    return in_use
