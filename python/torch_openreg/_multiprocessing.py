"""Sends tensors to other processes by sharing their memory instead of copying it, as for CUDA."""

from __future__ import annotations

import threading
from multiprocessing import queues, reduction
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from . import _C

NAME = "openreg"


def share_memory_between_processes() -> None:
    """Registers the device's storages with multiprocessing's pickler. Called once, when the device is loaded.

    Tensors of every layout are sent through their storages. `pickle` and `torch.save`, which write the elements, do
    not use this.
    """
    reduction.register(torch.UntypedStorage, _reduce_storage)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != NAME:
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild_empty_storage, (storage.device.index,)
    try:
        handle = _C.share_storage(storage)
    except RuntimeError as error:
        if _errors_are_only_printed():
            return _refuse, (str(error),)
        raise
    _remember(handle, storage)
    return _rebuild_storage, (handle,)


def _rebuild_storage(handle: tuple[int, ...]) -> torch.UntypedStorage:
    known = reductions.storage_from_cache(torch.UntypedStorage, _key(handle))
    storage = _C.receive_storage(handle, known)
    if storage is not known:
        _remember(handle, storage)
    return storage


def _rebuild_empty_storage(device: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=torch.device(NAME, device))


# With PyTorch's cache a process that receives the same storage twice, or its own, has only one storage.
def _remember(handle: tuple[int, ...], storage: torch.UntypedStorage) -> None:
    reductions.shared_cache[_key(handle)] = reductions.StorageWeakRef(storage)


def _key(handle: tuple[int, ...]) -> tuple[int, int]:
    _, _, token, _, _, offset, _, _ = handle
    return token, offset


def _errors_are_only_printed() -> bool:
    """Whether this thread pickles for a `multiprocessing.Queue`, whose receiver would wait forever after an error.

    The error is then sent to the receiver. Queues that handle errors themselves, such as those of `concurrent.futures`,
    pass their own function to the thread.
    """
    only_prints = queues.Queue._on_queue_feeder_error  # type: ignore[attr-defined]
    return only_prints in getattr(threading.current_thread(), "_args", ())


def _refuse(error: str) -> NoReturn:
    raise RuntimeError(error)
