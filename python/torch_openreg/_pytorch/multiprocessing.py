"""Sends tensors to other processes by sharing their memory instead of copying it, as for CUDA."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable
from multiprocessing import connection, popen_forkserver, popen_spawn_posix, queues, reduction
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from .. import _C
from .._slot import NAME


def share_memory_between_processes() -> None:
    """Registers the device's storages with multiprocessing's pickler. Called once, when the device is loaded.

    Tensors of every layout are sent through their storages. `pickle` and `torch.save`, which write the elements, do
    not use this.
    """
    reduction.register(torch.UntypedStorage, _reduce_storage)
    pickler: Any = reduction.ForkingPickler
    pickler.dump = _withdrawing_pickles(pickler.dump)
    for kind, name in ((connection._ConnectionBase, "send_bytes"), (connection.Connection, "_send_bytes")):
        setattr(kind, name, _withdrawing_writes(getattr(kind, name)))
    for start in (popen_spawn_posix.Popen, popen_forkserver.Popen):
        setattr(start, "_launch", _withdrawing_starts(getattr(start, "_launch")))  # noqa: B009, B010


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != NAME:
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild_empty_storage, (storage.device.index,)
    try:
        handle = _C.share_storage(storage, [] if _messages.of_pickle is None else _messages.of_pickle)
    except RuntimeError as error:
        if _errors_are_only_printed():
            return _refuse, (str(error),)
        raise
    _remember(handle, storage)
    return _rebuild_storage, (handle,)


# A message keeps its memory until it is received. The three wrappers below take back what has certainly not been sent,
# because its pickle, its write or the start of its receiver failed. After an interrupted write it is unknown whether
# the receiver has it: the memory stays.
class _Messages(threading.local):
    def __init__(self) -> None:
        self.of_pickle: list[tuple[int, ...]] | None = None  # of the innermost pickle under way
        self.unwritten: list[tuple[int, ...]] = []  # of the last pickle, until the thread's next write


_messages = _Messages()


def _withdrawing_pickles(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def dump(self: Any, obj: Any) -> None:
        mine: list[tuple[int, ...]] = []
        outer, _messages.of_pickle = _messages.of_pickle, mine
        try:
            original(self, obj)
        except BaseException:
            _withdraw(mine)
            raise
        finally:
            _messages.of_pickle = outer
        if outer is None:
            _messages.unwritten = mine
        else:  # a pickle within a pickle
            outer += mine

    return dump


def _withdrawing_writes(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def send(self: Any, buf: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, buf, *args, **kwargs)
        except Exception as error:
            if not _is_of_signal_handler(error):
                _withdraw([handle for handle in _messages.unwritten if _contains(buf, handle)])
            raise
        finally:
            _messages.unwritten = []

    return send


def _withdrawing_starts(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def launch(self: Any, process_obj: Any) -> None:
        try:
            original(self, process_obj)
        except OSError:
            if not hasattr(self, "sentinel"):  # there is no process
                _withdraw(_messages.unwritten)
            raise
        finally:
            _messages.unwritten = []

    return launch


def _is_of_signal_handler(error: Exception) -> bool:
    """Whether a signal handler raised it: the write may be complete. The connection raises its errors in its module."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is None or place.tb_frame.f_globals.get("__name__") != connection.__name__


def _contains(buf: Any, handle: tuple[int, ...]) -> bool:
    _, _, token, _, _, offset, _, _ = handle
    pickled = bytes(buf)
    return all(pickle.dumps(number, protocol=2)[2:-1] in pickled for number in (token, offset))


def _withdraw(messages: list[tuple[int, ...]]) -> None:
    while messages:
        _C.withdraw_message(messages.pop())


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
