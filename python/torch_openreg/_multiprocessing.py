"""Tensors go to other processes with their memory, not with a copy of it, as CUDA's do."""

from __future__ import annotations

import threading
from multiprocessing import queues, reduction
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from . import _C

NAME = "openreg"


def share_memory_between_processes() -> None:
    """Teaches multiprocessing's pickler. Called once, when the device is loaded.

    Every tensor of whatever layout gets to another process by way of its storages. `pickle` and `torch.save`, which
    write the elements, do not ask here.
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


# By PyTorch's cache a process that gets the same storage twice, or its own one back, has one storage.
def _remember(handle: tuple[int, ...], storage: torch.UntypedStorage) -> None:
    reductions.shared_cache[_key(handle)] = reductions.StorageWeakRef(storage)


def _key(handle: tuple[int, ...]) -> tuple[int, int]:
    _, _, token, _, _, offset, _, _ = handle
    return token, offset


def _errors_are_only_printed() -> bool:
    """Whether this thread pickles for a `multiprocessing.Queue`, on whose other side somebody waits for ever.

    Then it is the receiver who gets the error. Queues that handle it themselves, as those of `concurrent.futures` do,
    bring a function of their own to their thread.
    """
    only_prints = queues.Queue._on_queue_feeder_error  # type: ignore[attr-defined]
    return only_prints in getattr(threading.current_thread(), "_args", ())


def _refuse(error: str) -> NoReturn:
    raise RuntimeError(error)
