"""Memory of the device belongs to one process. What would take it to another one raises, and says what to do."""

from __future__ import annotations

import functools
import threading
from multiprocessing import queues, reduction
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

NAME = "openreg"


def keep_memory_in_its_process() -> None:
    """Teaches multiprocessing's pickler and the storages. Called once, when the device is loaded.

    Every tensor of whatever layout gets to another process by way of its storages. `pickle` and `torch.save`, which
    write the elements, do not ask here.
    """
    reduction.register(torch.UntypedStorage, _reduce_storage)
    _patch_sharing()


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != NAME:
        return reductions.reduce_storage(storage)
    error = (
        f"openreg: a tensor of {storage.device} cannot go to another process; send tensor.cpu(), and move what arrives "
        "to a device there"
    )
    if _errors_are_only_printed():
        return _refuse, (error,)
    _refuse(error)


def _errors_are_only_printed() -> bool:
    """Whether this thread pickles for a `multiprocessing.Queue`, on whose other side somebody waits for ever.

    Then it is the receiver who gets the error. Queues that handle it themselves, as those of `concurrent.futures` do,
    bring a function of their own to their thread.
    """
    only_prints = queues.Queue._on_queue_feeder_error  # type: ignore[attr-defined]
    return only_prints in getattr(threading.current_thread(), "_args", ())


def _refuse(error: str) -> NoReturn:
    raise RuntimeError(error)


def _patch_sharing() -> None:
    # PyTorch says of any device but the CPU's that its memory is shared already, as CUDA's is.
    share_memory_, is_shared = torch.UntypedStorage.share_memory_, torch.UntypedStorage.is_shared

    @functools.wraps(share_memory_)
    def share_or_refuse(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type == NAME:
            _refuse(f"openreg: memory of {self.device} cannot be shared with other processes; use .cpu() first")
        return share_memory_(self)  # type: ignore[no-any-return]

    @functools.wraps(is_shared)
    def is_really_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type != NAME and is_shared(self)

    torch.UntypedStorage.share_memory_ = share_or_refuse  # type: ignore[method-assign]
    torch.UntypedStorage.is_shared = is_really_shared  # type: ignore[method-assign, assignment]
